# Rows as JSON: the whole text, then as a strict parser reads it.
"$FIXTURE" p.enigma
"$ENIGMA" report p.enigma --json
"$ENIGMA" report p.enigma --json --by path --sort name >rows.json
python3 - <<'PY'
import json

def refuse(constant):
    raise ValueError(constant)

rows = json.load(open("rows.json"), parse_constant=refuse)["rows"]
for row in rows:
    print(row["name"].encode(), row["kernel_name"], row["calls"], row["call_path"], row["metrics"])
PY

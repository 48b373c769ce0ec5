# Each exporter by suffix and by name gives the same file; the suffix is that of the table.
"$FIXTURE" p.enigma
for format in hatchet:.hatchet.json chrome:.trace.json; do
    name=${format%%:*}
    suffix=${format#*:}
    rm -f "p$suffix" by-name
    "$ENIGMA" export p.enigma -o "p$suffix"
    echo "exit $?"
    "$ENIGMA" export --format "$name" -o by-name p.enigma
    echo "exit $?"
    cmp "p$suffix" by-name && echo "$name: the same"
done
python3 - <<'PY'
import json

root = json.load(open("p.hatchet.json"))
print("hatchet:", [node["frame"]["name"] for node in root[0]["children"]])
events = json.load(open("p.trace.json"))["traceEvents"]
print("chrome:", sorted({event["name"] for event in events if event["ph"] == "X"}))
PY

# Tables by name and by path, sorted and cut, and the tree.
"$FIXTURE" p.enigma
echo '--- by name'
"$ENIGMA" report p.enigma
echo '--- by path'
"$ENIGMA" report p.enigma --by path
echo '--- by GPU time, two rows'
"$ENIGMA" report --sort gpu_total_us --limit=2 p.enigma
echo '--- by name of the row'
"$ENIGMA" report -- p.enigma | head -3
"$ENIGMA" report p.enigma --sort name --limit 100
echo '--- tree'
"$ENIGMA" report p.enigma --tree
"$FIXTURE" empty.enigma empty
echo '--- empty'
"$ENIGMA" report empty.enigma
"$ENIGMA" report empty.enigma --by path --limit 3
"$ENIGMA" report empty.enigma --tree
"$ENIGMA" report empty.enigma --json

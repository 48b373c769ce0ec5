# Wrong usage: one line on standard error, exit code 2, nothing on standard output.
try() {
    "$ENIGMA" "$@" 2>&1 >out
    echo "exit $?, $(wc -c <out) bytes out"
}
"$FIXTURE" p.enigma
try
try nope
try --nope
try info extra
try info --nope
try report
try report p.enigma q.enigma
try report p.enigma --by kernel
try report p.enigma --sort nope
try report p.enigma --sort ""
try report p.enigma --limit 0
try report p.enigma --limit 2x
try report p.enigma --limit -1
try report p.enigma --limit
try report p.enigma --json=yes
try report p.enigma --tree --json
try report p.enigma --tree --by path
try export p.enigma
try export p.enigma -o p.out
try export p.enigma -o p.trace.json --format nope

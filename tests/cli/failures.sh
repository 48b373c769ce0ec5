# What fails at run time: one line on standard error that names the file, exit code 1.
try() {
    "$ENIGMA" "$@" 2>&1 >out
    echo "exit $?"
}
"$FIXTURE" p.enigma
rm -rf folder missing
try report missing.enigma
mkdir folder
try report folder
printf 'not a profile' >bad.enigma
try report bad.enigma
head -c 200 p.enigma >short.enigma
try report short.enigma
try export missing.enigma -o p.trace.json
try export p.enigma -o missing/p.trace.json
[ -e p.trace.json ] || [ -e missing ] || echo "nothing was written"

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
ls p.trace.json missing 2>/dev/null
if [ -e /dev/full ]; then
    "$ENIGMA" report p.enigma 2>&1 >/dev/full
    echo "exit $?"
    "$ENIGMA" info 2>&1 >/dev/full
    echo "exit $?"
    try export p.enigma --format chrome -o /dev/full
else
    cat "${0%.sh}.full" # this system has no such device
fi

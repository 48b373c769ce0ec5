# A full disk: one line on standard error, exit code 1.
if ! [ -e /dev/full ]; then
    echo "skipped: this system has no /dev/full"
    exit 77
fi
"$FIXTURE" p.enigma
"$ENIGMA" report p.enigma 2>&1 >/dev/full
echo "exit $?"
"$ENIGMA" info 2>&1 >/dev/full
echo "exit $?"
"$ENIGMA" export p.enigma --format chrome -o /dev/full 2>&1
echo "exit $?"

# --help and --version, for the command and each of its commands.
"$ENIGMA" --version | sed 's/ [0-9][0-9]*\.[0-9][0-9]*\.[0-9][0-9]*$/ VERSION/'
"$ENIGMA" --help
for command in info report export; do
    echo "--- $command"
    "$ENIGMA" $command --help
done

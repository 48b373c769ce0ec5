# The tables of the library, whatever the machine offers.
"$ENIGMA" info
ENIGMA_DEVICE=3 "$ENIGMA" info | grep ENIGMA_DEVICE

#!/usr/bin/env bash
# Lines that the tests of the cov preset ran, by file and in all; fails below FLOOR percent (80).
set -euo pipefail
cd "$(dirname "$0")/.."
objects=$PWD/build/cov/CMakeFiles/enigma_objects.dir
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
find "$objects" -name '*.gcda' -print0 | (cd "$work" && xargs -0 gcov -n -r -s "$OLDPWD" 2>/dev/null) |
    awk -v floor="${FLOOR:-80}" '
        /^File / { file = substr($0, 7, length($0) - 7) }
        /^Lines executed:/ && file ~ /^src\/.*\.c$/ {
            split($0, part, /[:% ]+/); percent = part[3]; lines = part[5]
            printf "%6.1f %% of %4d  %s\n", percent, lines, file
            run += percent * lines / 100; all += lines; file = ""
        }
        END {
            if (!all) { print "no coverage data: run scripts/check cov first"; exit 1 }
            printf "%6.1f %% of %4d  in all\n", 100 * run / all, all
            exit 100 * run / all < floor
        }'

#!/bin/sh
# check_digits.sh MPIRUN DIGITS DATA: 1, 2, 3 and 4 ranks end with the same weights to 1e-4, each of them, and learn (exit code 2
# if not).
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for n in 1 2 3 4; do
  "$1" -n $n "$2" "$3" 200 "$work/$n" | tail -n 1
  paste "$work/1" "$work/$n" | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > most) most = d }
    END { printf "%d weights, largest difference to one rank %.2g\n", NR, most; exit !(NR > 1000 && most < 1e-4) }'
done

#!/bin/sh
# check_digits.sh MPIRUN DIGITS: 1, 2, 3 and 4 ranks end with the same weights to 1e-4, and learn (exit code 2 if not).
set -eu
reference=
for n in 1 2 3 4; do
  line=$("$1" -n $n "$2" | tail -n 1)
  echo "$line"
  weights=$(echo "$line" | sed 's/.*weights \([-0-9.]*\).*/\1/')
  [ -n "$reference" ] || reference=$weights
  awk -v a="$weights" -v b="$reference" 'BEGIN { d = a - b; exit !(d < 1e-4 && d > -1e-4) }' || { echo "weights differ"; exit 1; }
done

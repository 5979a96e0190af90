#!/bin/sh
# check_power_iteration.sh MPIRUN POWER_ITERATION: the eigenvalue is numpy's to 1e-12, at any number of ranks, also with fewer rows.
set -eu
/usr/bin/python3 -c 'import numpy' 2>/dev/null || { echo "no numpy for /usr/bin/python3 (apt-get install python3-numpy)"; exit 77; }
for n in 1 2 3 4 8; do
  for rows in 1 5 300; do
    line=$("$1" -n $n "$2" $rows)
    echo "$line" | /usr/bin/python3 -c '
import sys, numpy
rows = int(sys.argv[1])
i = numpy.arange(1, rows + 1)
expected = numpy.linalg.eigvalsh(numpy.minimum.outer(i, i) / numpy.maximum.outer(i, i))[-1]
line = sys.stdin.read().strip()
error = abs(float(line.split()[-1]) - expected) / expected
print(f"{line}, numpy {expected:.15g}, relative difference {error:.1g}")
sys.exit(0 if error <= 1e-12 else 1)' $rows
  done
done

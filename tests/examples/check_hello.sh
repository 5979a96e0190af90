#!/bin/sh
# check_hello.sh MPIRUN HELLO: prints a line per worker on rank 0's terminal and nothing on stderr.
set -eu
out=$("$1" -n 3 "$2" 2>&1)
echo "$out"
[ "$out" = "$(printf 'hello from worker 0\nhello from worker 1\nhello from worker 2')" ]

#!/bin/sh
# check_custom_module.sh MPIRUN CUSTOM_MODULE SOURCE: the module compiles as the file says, without a header or a library, and works.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -std=c11 -Wall -Wextra -Werror -O2 -shared -fPIC "$3" -o "$work/libblas_module.so"
for n in 1 2 3 4; do
  out=$("$1" -n $n "$2" "$work/libblas_module.so")
  echo "$out"
  echo "$out" | grep -q 'TypeError: axpy expects float32 vectors on the CPU'
done
# a file that is none: an error that names it, and an exit code
if out=$("$1" -n 2 "$2" "$work/none.so" 2>&1); then exit 1; fi
echo "$out" | grep -q "none.so.*No such file"

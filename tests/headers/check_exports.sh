#!/bin/sh
# check_exports.sh LIBTUTTI LIST: what the library shows is LIST, neither more nor less. After a wanted change: the same with --write.
# (What the standard library's templates leave is not ours to name; exceptions need their typeinfo.)
set -eu
show() { nm -DC --defined-only "$1" | sed -nE 's/^[0-9a-f]+ (T|B|D|R) //p; s/^[0-9a-f]+ V (typeinfo for tutti::[A-Za-z]+)$/\1/p' | sed "s/session_from([^,]*,/session_from(MPI_Comm,/" | LC_ALL=C sort -u; }
if [ "${3:-}" = --write ]; then show "$1" > "$2"; else show "$1" | diff -u "$2" -; fi

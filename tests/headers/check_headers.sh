#!/bin/bash
# check_headers.sh INCLUDE_DIR COMPILER...: every public header compiles alone, in C++20 and C++23, without the include paths of any
# back end (interop/ and testing.h have MPI's), and abi.h in C as well.
set -uo pipefail
include=$1; shift
mpi=$(pkg-config --cflags ompi-c 2>/dev/null || mpicc -showme:compile 2>/dev/null || mpicc -compile_info 2>/dev/null | cut -d' ' -f2-)
one() { # one COMPILER STANDARD HEADER
  local flags=(-fsyntax-only -Wall -Wextra -Wpedantic -Werror -I"$include") language=c++
  case $2 in c[0-9]*) language=c; [ "$3" = tutti/abi.h ] || return 0 ;; esac
  case $3 in tutti/interop/*|tutti/testing.h) read -ra more <<<"${mpi//-I/-isystem }"; flags+=("${more[@]}" -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX) ;; esac
  echo "#include \"$3\"" | "$1" "-std=$2" "${flags[@]}" -x $language - || { echo "FAILED: $1 -std=$2 $3"; return 1; }
}
export include mpi
export -f one
for compiler; do
  command -v "$compiler" >/dev/null || { echo "no $compiler"; exit 1; }
  case $compiler in *clang*) newest=c++2b c=clang ;; *) newest=c++23 c=gcc ;; esac
  (cd "$include" && find tutti -name '*.h') | while read -r header; do
    for standard in c++20 $newest; do echo "$compiler $standard $header"; done
    echo "$c c11 $header"
  done
done | xargs -P "$(nproc)" -L 1 bash -c 'one "$@"' _ && echo "all headers compile alone: $*"

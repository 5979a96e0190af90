#!/usr/bin/env bash
# check_install.sh BUILD_DIR COMPILER...: meson install into an empty prefix; programs outside the tree build with pkg-config and run.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/support/mpi_env.sh"
build=$(cd "$1" && pwd)
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
DESTDIR=$work/root meson install -C "$build" --no-rebuild --quiet
pc=$(find "$work/root" -name tutti.pc)
export PKG_CONFIG_PATH=$(dirname "$pc") PKG_CONFIG_SYSROOT_DIR=$work/root
cp "$root/examples/hello.cpp" "$root/examples/interop_mpi.cpp" "$work/"
awk '/^```cpp/ { on = 1; next } /^```/ { on = 0 } on' "$root/README.md" > "$work/readme.cpp"  # its 15-line program
for compiler; do
  # shellcheck disable=SC2046
  $compiler "$work/hello.cpp" $(pkg-config --cflags --libs tutti) -o "$work/hello"
  lib=$(dirname "$(find "$work/root" -name 'libtutti.so')")
  [ "$(LD_LIBRARY_PATH=$lib mpirun -n 2 "$work/hello" | wc -l)" = 2 ]
  # shellcheck disable=SC2046
  $compiler "$work/readme.cpp" $(pkg-config --cflags --libs tutti) -o "$work/readme"
  LD_LIBRARY_PATH=$lib mpirun -n 3 "$work/readme" | tee "$work/out"
  [ -s "$work/out" ]
  # shellcheck disable=SC2046
  OMPI_CXX=$compiler mpicxx "$work/interop_mpi.cpp" $(pkg-config --cflags --libs tutti) -o "$work/interop_mpi"
  LD_LIBRARY_PATH=$lib mpirun -n 3 "$work/interop_mpi"
  echo "$compiler: fine"
done
tutti=$(find "$work/root" -path '*/bin/tutti')
has() { grep -q -- "$2" "$1" || { cat "$1"; echo "expected: $2"; exit 1; }; }  # of a file: grep -q closes a pipe before its writer is done
"$tutti" run -n 2 -- "$tutti" bench --help > "$work/out"
has "$work/out" allreduce  # tutti-mpi is beside it
"$tutti" doctor > "$work/out" || true  # this machine may have its problems
has "$work/out" 'two ranks start'
[ -s "$(find "$work/root" -name 'tutti.1*')" ]
bash -n "$(find "$work/root" -name _tutti)"
if extension=$(find "$work/root" -name '_core.*.so' | grep .); then  # finds the library by itself
  ls "$lib/libtutti_python.so"
  unset PYTHONPATH  # the folders that python3 looks into by itself, in the place where all was installed
  /usr/bin/python3 -c 'import sys; sys.path[:0] = [sys.argv[1] + path for path in sys.path if path]
import tutti; print(tutti.ThreadedSession(2), tutti.__file__)' "$work/root"
fi

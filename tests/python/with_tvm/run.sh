#!/bin/sh
# run.sh PYTHON VENV [KIND:WORKERS...]: the tests beside this with stock apache-tvm, on every kind of session, or on those that are
# named (thread:3). The wheels go to the folder VENV, once.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=$1 venv=$2
shift 2
[ $# -gt 0 ] || set -- thread:1 process:1 mpi:1 thread:2 process:2 mpi:2 thread:3 process:3 mpi:3 thread:4 process:4 mpi:4
"$python" -c 'import sys; sys.exit(sys.version_info[:2] not in [(3, 9), (3, 10), (3, 11), (3, 12), (3, 13)])' ||
  { echo "apache-tvm has no wheel for this Python"; exit 77; }
if [ ! -e "$venv/is_complete" ]; then
  rm -rf "$venv"
  "$python" -m venv "$venv" || { echo "python3-venv is not installed"; exit 77; }
  packages="apache-tvm>=0.27.0.post1 apache-tvm-ffi>=0.1.15 numpy pytest cloudpickle"
  # shellcheck disable=SC2086
  "$venv/bin/pip" install -q $packages || "$venv/bin/pip" install -q $packages || { echo "pip could not install the wheels"; exit 1; }
  touch "$venv/is_complete"
fi
pytest="-m pytest -q -p no:cacheprovider --color=no -o pythonpath=$here/.."
failed=0
run() { "$@" || failed=1; }
for how in "$@"; do
  export TUTTI_TEST_KIND="${how%:*}" TUTTI_TEST_WORKERS="${how#*:}"
  echo "$TUTTI_TEST_KIND $TUTTI_TEST_WORKERS"
  launched=
  case $TUTTI_TEST_KIND in
  mpi) launched="$MPIRUN -n $TUTTI_TEST_WORKERS" program="$venv/bin/python -m tutti" class=ProcessSession ;;
  process) program=$venv/bin/python class=ProcessSession ;;
  *) program=$venv/bin/python class=ThreadedSession ;;
  esac
  # shellcheck disable=SC2086
  run $launched $program $pytest "$here" --ignore="$here/test_programs.py"
  # shellcheck disable=SC2086  (by itself: what it imports changes tvm.runtime.disco and debug_get_from_remote)
  run $launched $program $pytest "$here/test_programs.py"
  # shellcheck disable=SC2086
  run $launched "$venv/bin/python" -m tutti --tvm "$here/unchanged.py" "$class" "$TUTTI_TEST_WORKERS"
  [ "$TUTTI_TEST_KIND" = mpi ] || continue
  # shellcheck disable=SC2086
  run $launched $program "$here/../../../examples/python/tvm_tensor_parallel.py"
  # shellcheck disable=SC2086
  run $launched $program -m tutti.bench --tvm --repeats 1
done
exit $failed

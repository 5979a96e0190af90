#!/bin/sh
# run.sh PYTHON VENV: the tests beside this with stock apache-tvm, on every kind of session. The wheels go to the folder VENV, once.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=$1 venv=$2
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
run() {
  echo "$TUTTI_TEST_KIND $TUTTI_TEST_WORKERS"
  "$@" "$here" || failed=1
}
for TUTTI_TEST_WORKERS in 1 2 3 4; do
  export TUTTI_TEST_WORKERS
  for TUTTI_TEST_KIND in thread process mpi; do
    export TUTTI_TEST_KIND
    # shellcheck disable=SC2086
    case $TUTTI_TEST_KIND in
    mpi) run "$MPIRUN" -n "$TUTTI_TEST_WORKERS" "$venv/bin/python" -m tutti $pytest ;;
    *) run "$venv/bin/python" $pytest ;;
    esac
  done
done
exit $failed

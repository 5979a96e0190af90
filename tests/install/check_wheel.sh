#!/usr/bin/env bash
# check_wheel.sh PYTHON: pip builds a wheel of this tree and installs it into an empty environment, where a session runs.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/support/mpi_env.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset PYTHONPATH
mkdir "$work/source" "$work/elsewhere"
(cd "$root" && git ls-files -z | tar --null -cf - -T -) | tar -xf - -C "$work/source"
cd "$work/source"
git init -q . && git add -A && git -c user.name=test -c user.email=test@localhost commit -qm "what is to be packed"  # meson-python packs a commit
"$1" -m pip wheel -q --no-build-isolation --no-deps -w "$work" .
"$1" -m venv --system-site-packages "$work/env"
"$work/env/bin/pip" install -q --no-deps "$work"/tutti-*.whl
cd "$work/elsewhere"
[ "$("$work/env/bin/python" -c 'import tutti; print(tutti.ProcessSession(2), tutti.__file__.startswith("'"$work"'"))')" = "Session(process, 2 workers, 1 group, ccl=auto, nodes=1) True" ]
mpirun -n 2 "$work/env/bin/python" -m tutti -c 'import tutti; print(tutti.Session())'
"$work/env/bin/tutti" --version

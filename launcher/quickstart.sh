#!/usr/bin/env bash
# Sets tutti up on a fresh Debian or Ubuntu. The commands may come in any order.
#   launcher/quickstart.sh              installs what is missing, builds tutti and one example, runs it on four ranks
#   launcher/quickstart.sh test         builds all, runs the quick tests
#   launcher/quickstart.sh test --long  the long suite as well (full matrices, soaks)
# On two cores these take 4 minutes, 20 minutes, hours.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
usage() { sed -n '2,6s/^# \{0,1\}//p' "launcher/quickstart.sh"; exit 2; }
what=${1:-example} long=${2:-}
case "$what $long" in "example "|"test "|"test --long") ;; *) usage ;; esac

packages=(g++ meson ninja-build pkg-config libopenmpi-dev openmpi-bin libfmt-dev libdw-dev libhwloc-dev libgtest-dev zlib1g-dev nlohmann-json3-dev libcli11-dev
  python3-dev pybind11-dev python3-numpy libopenblas0-pthread)
[[ $(uname -m) != x86_64 ]] || packages+=(libisal-dev)  # checksums of checkpoints
[ "$what" != test ] || packages+=(python3-pytest python3-tqdm python3-cloudpickle)
[ -z "$long" ] || packages+=(clang clang-tidy debootstrap libclang-rt-dev libsimgrid-dev spin python3-ipykernel python3-nbclient python3-matplotlib python3-mesonpy python3-mpi4py python3-pip python3-torch python3-venv patchelf)
install_missing() {
  local missing=() package run=
  if ! command -v dpkg-query >/dev/null; then
    echo "quickstart: not a Debian or Ubuntu; please install the counterparts of: ${packages[*]}" >&2
    return
  fi
  for package in "${packages[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ]; then
    if sudo -n true 2>/dev/null || { [ -t 0 ] && command -v sudo >/dev/null; }; then
      run=sudo
    else
      echo "quickstart: packages are missing; run this, then start again:" >&2
      echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
      exit 1
    fi
  fi
  echo "== installing ${missing[*]}"
  $run apt-get update -qq
  $run env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

install_missing
build=${TUTTI_BUILD_DIR:-build}
[ -f "$build/build.ninja" ] || meson setup "$build"
. tests/support/mpi_env.sh
if [ "$what" = test ]; then
  ninja -C "$build"
  suites=(--suite quick)
  [ -z "$long" ] || suites+=(--suite wide --suite long)
  exec tests/support/run_suites.sh "$build" "${suites[@]}"
fi
ninja -C "$build" start
echo "== digits on 4 ranks: mpirun -n 4 $build/examples/digits"
mpirun -n 4 "$build/examples/digits"
cat <<EOF
== It works. What is next:
  export PATH=\$PWD/$build/launcher:\$PATH            # the tutti command: tutti run, map, doctor, ...
  tutti run -n 4 -- $build/examples/digits
  export PYTHONPATH=\$PWD/$build/src/python           # Python: docs/python.md
  /usr/bin/python3 -c 'import tutti; print(tutti.ThreadedSession(4))'
  launcher/quickstart.sh test                         # builds the other examples and the tests, runs the quick tests
EOF

#!/usr/bin/env bash
# run.sh [NAME...]: plants each fault (*.patch here) into a copy of the sources as committed, builds, and runs the GPU suites on the stand-ins:
# they must turn red. About a minute for each. The last line: "N of N faults found".
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../../.." && pwd)
names=("$@")
programs=(gpu_tests tests/control/{members,controller}_test tests/agreement/announcements_test)
[ $# -gt 0 ] || mapfile -t names < <(cd "$here" && ls -- *.patch | sed 's/\.patch$//')
work=$(mktemp -d -p "${TUTTI_MUTANTS:-/var/tmp}")
trap 'rm -rf "$work"' EXIT
git -C "$source" archive HEAD | tar -x -C "$work"
cd "$work"
meson setup build -Dexamples=false -Dpython=disabled -Doptimization=1 >build.log 2>&1 || { tail -n 20 build.log; exit 1; }
. tests/support/mpi_env.sh
. tests/gpu/standin/env.sh build
export TUTTI_TIMEOUT=20 GTEST_BRIEF=1 GTEST_FAIL_FAST=1
run() { # NAME COMMAND...: 0 if it is red
  local name=$1; shift
  ! timeout 60 "$@" >"$work/$name.log" 2>&1 || return 1
  found=$name
}
red() {
  run device env STANDIN_MEMORY=67108864 "$gpu/gpu_device_test" && return
  for seed in 1 2; do
    run "session on threads" env STANDIN_SEED=$seed TUTTI_TEST_KIND=thread TUTTI_TEST_WORKERS=3 "$gpu/gpu_session_test" && return
    run "session on processes" env STANDIN_SEED=$seed TUTTI_TEST_KIND=process TUTTI_TEST_WORKERS=4 "$gpu/gpu_session_test" && return
  done
  run "session on nodes" env TUTTI_TEST_KIND=mpi TUTTI_TEST_WORKERS=4 TUTTI_RANKS_PER_NODE=2 TUTTI_ALLOW_SHARED_DEVICE=1 \
    mpirun -n 4 "$gpu/gpu_session_test" && return
  run contract env TUTTI_TEST_KIND=thread TUTTI_TEST_WORKERS=3 build/tests/collective/contract_test --gtest_filter=*gpus && return
  run "contract of an old NCCL" env STANDIN_NCCL_VERSION=21900 TUTTI_TEST_KIND=thread TUTTI_TEST_WORKERS=3 \
    build/tests/collective/contract_test --gtest_filter=*gpus && return
  run "session of RCCL" env TUTTI_TEST_CCL=rccl TUTTI_TEST_KIND=thread TUTTI_TEST_WORKERS=2 "$gpu/gpu_session_test" && return
  run announcements build/tests/agreement/announcements_test && return
  run controller build/tests/control/controller_test && return
  run RAS "$gpu/gpu_ras_test" && return
  run auto env TUTTI_TEST_EXPECT=nccl TUTTI_TEST_KIND=thread TUTTI_TEST_WORKERS=3 "$gpu/gpu_auto_test" && return
  run "choice of a GPU" build/tests/control/members_test && return
  run "by way of the host" env TUTTI_TEST_GPUS=8 TUTTI_TEST_CCL=mpi TUTTI_TEST_KIND=thread TUTTI_TEST_WORKERS=2 \
    build/tests/collective/communicator_test && return
  run communicator env TUTTI_TEST_KIND=thread TUTTI_TEST_WORKERS=3 build/tests/collective/communicator_test
}
ninja -C build "${programs[@]}" >build.log 2>&1 || { tail -n 20 build.log; exit 1; }
found=
if red; then
  echo "without any fault '$found' is red:"; tail -n 20 "$work/$found.log"; exit 1
fi
number=0
for name in "${names[@]}"; do
  patch -p1 --no-backup-if-mismatch <"$here/$name.patch" >patch.log || { cat patch.log; echo "$name: does not apply any more"; exit 1; }
  if ! ninja -C build "${programs[@]}" >build.log 2>&1; then
    tail -n 20 build.log; echo "$name: does not compile"; exit 1
  elif red; then
    number=$((number + 1)); echo "$name: found by $found"
  else
    echo "$name: NOT FOUND"
  fi
  patch -R -p1 --no-backup-if-mismatch <"$here/$name.patch" >patch.log
done
echo "$number of ${#names[@]} faults found"
[ "$number" = "${#names[@]}" ]

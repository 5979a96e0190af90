#!/usr/bin/env bash
# check.sh [BUILD]: the suites that need no stand-in, on the GPUs of this machine and the NCCL that is found (TUTTI_NCCL_LIBRARY names
# another one), in less than 10 minutes. Builds what they need into BUILD (build-gpu). On one GPU several ranks share it. The last line:
# N passed, N failed, N skipped; a skip says why.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${1:-build-gpu}
. tests/support/mpi_env.sh
passed=0 failed=0 skipped=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
check() { # NAME COMMAND...
  local name=$1 code=0 since=$SECONDS; shift
  timeout 120 "$@" >"$log" 2>&1 || code=$?
  if [ $code = 0 ]; then passed=$((passed + 1)); echo "ok: $name: $((SECONDS - since)) s"
  else failed=$((failed + 1)); echo "FAILED (exit code $code): $name: $((SECONDS - since)) s"; tail -n 40 "$log"; fi
}
skip() { skipped=$((skipped + 1)); echo "skipped: $1: $2"; }

if command -v nvidia-smi >/dev/null; then nvidia-smi --query-gpu=name,driver_version,memory.total,pci.bus_id --format=csv,noheader; fi
if [ -z "${TUTTI_NCCL_LIBRARY:-}" ] && ! ldconfig -p | grep -q 'libnccl\.so\.2'; then
  TUTTI_NCCL_LIBRARY=$(find / -xdev -name 'libnccl.so.2' 2>/dev/null | head -n 1)
  export TUTTI_NCCL_LIBRARY
fi
echo "NCCL: ${TUTTI_NCCL_LIBRARY:-libnccl.so.2}"
[ -f "$build/build.ninja" ] || meson setup "$build" -Dexamples=false -Dpython=disabled >"$log" 2>&1 || { cat "$log"; exit 1; }
check "build" ninja -C "$build" gpu_tests launcher/tutti
[ $failed = 0 ] || { echo "$passed passed, $failed failed, $skipped skipped"; exit 1; }

export GTEST_BRIEF=1 TUTTI_TEST_CCL=nccl
gpus=$("$build/tests/gpu/gpu_short" gpus) || { echo "$gpus"; echo "$passed passed, 1 failed, $skipped skipped"; exit 1; }
echo "$gpus GPUs"
check "memory, copies, streams" "$build/tests/gpu/gpu_device_test" \
  --gtest_filter='Gpu.*:OnStreams.peers_*:OnStreams.memory_*:OnStreams.there_are_no_more*'
for n in 1 2 3 4; do
  if [ "$n" -gt 1 ] && [ "$n" -gt "$gpus" ]; then export TUTTI_ALLOW_SHARED_DEVICE=1; fi
  if [ "$n" -le "$gpus" ]; then
    for program in contract communicator; do
      check "$program, $n threads" env TUTTI_TEST_KIND=thread TUTTI_TEST_WORKERS=$n "$build/tests/collective/${program}_test"
    done
    check "a short program, $n threads" bash -c '"$0" $1 | tee /dev/stderr | grep -qx done' "$build/tests/gpu/gpu_short" $n
  elif [ "$n" = 4 ]; then
    skip "4 ranks on $gpus GPUs" "3 that share them are enough"
    continue
  fi
  for program in contract communicator; do
    check "$program, $n ranks${TUTTI_ALLOW_SHARED_DEVICE:+ that share GPUs}" env TUTTI_TEST_KIND=mpi TUTTI_TEST_WORKERS=$n \
      mpirun -n $n "$build/tests/collective/${program}_test"
  done
done
unset TUTTI_ALLOW_SHARED_DEVICE
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
if [ -n "$nvcc" ]; then
  check "a kernel is compiled" "$nvcc" -O2 -shared -Xcompiler -fPIC -cudart static -Iinclude -Itests tests/gpu/matmul.cu -o "$build/matmul.so"
  for n in $(seq "$gpus"); do
    check "a kernel, then an allreduce: $n threads" "$build/tests/gpu/gpu_tensor_parallel" "$build/matmul.so" "$n"
  done
  check "a kernel, then an allreduce: $gpus ranks" mpirun -n "$gpus" "$build/tests/gpu/gpu_tensor_parallel" "$build/matmul.so"
else
  skip "a kernel" "no nvcc"
fi
for operation in allreduce broadcast all_to_all; do
  check "bench $operation" mpirun -n "$gpus" "$build/launcher/tutti" bench $operation -b 1K -e 256M -f 4 --device cuda
  cat "$log"
done
check "by way of the host" env TUTTI_TEST_KIND=mpi TUTTI_TEST_WORKERS=2 TUTTI_TEST_CCL=mpi TUTTI_TEST_GPUS="$gpus" \
  mpirun -n 2 "$build/tests/collective/communicator_test"
if [ "$gpus" = 1 ]; then
  check "two workers on one GPU are refused" bash -c \
    'mpirun -n 2 "$0" mpi 2>&1 | tee /dev/stderr | grep -q "both have the GPU"' "$build/tests/gpu/gpu_short"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]

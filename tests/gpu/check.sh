#!/usr/bin/env bash
# check.sh [BUILD]: the suites that need no stand-in, on the GPUs of this machine and the NCCL that is found (TUTTI_NCCL_LIBRARY names
# another one), in less than 10 minutes. Builds what they need into BUILD (build-gpu), where the logs go, too. On one GPU several ranks
# share it. The last line: N passed, N failed, N skipped; a skip says why.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=$(realpath -m -- "${1:-build-gpu}")
. tests/support/mpi_env.sh
passed=0 failed=0 skipped=0
mkdir -p "$build/logs"
check() { # NAME COMMAND...
  local name=$1 code=0 since=$SECONDS log; shift
  log="$build/logs/${name//[^a-zA-Z0-9]/_}"
  timeout -k 10 "${limit:-60}" "$@" >"$log" 2>&1 || code=$?
  [ $code != 0 ] || ! grep -q '0 tests from 0 test suites' "$log" || code="0, but no test has that name"
  if [ "$code" = 0 ]; then passed=$((passed + 1)); echo "ok: $name: $((SECONDS - since)) s"
  else failed=$((failed + 1)); echo "FAILED (exit code $code): $name: $((SECONDS - since)) s"; tail -n 40 "$log"; fi
}
check_pytest() { # NAME COMMAND...: its skips are ours
  check "$@"
  local n why
  while IFS='[]' read -r _ n why; do
    for _ in $(seq "$n"); do skip "$1" "$why"; done
  done < <(grep '^SKIPPED \[' "$build/logs/${1//[^a-zA-Z0-9]/_}")
}
skip() { skipped=$((skipped + 1)); echo "skipped: $1: $2"; }
python=$(command -v python3)
end() { echo "$passed passed, $failed failed, $skipped skipped"; exit $((failed > 0)); }

if command -v nvidia-smi >/dev/null; then nvidia-smi --query-gpu=name,driver_version,memory.total,pci.bus_id --format=csv,noheader; fi
if [ -z "${TUTTI_NCCL_LIBRARY:-}" ] && [[ $(ldconfig -p) != *libnccl.so.2* ]]; then
  TUTTI_NCCL_LIBRARY=$(find / -xdev -name libnccl.so.2 ! -path '*/tests/gpu/*' ! -path '/tmp/*' 2>/dev/null | head -n 1)
  export TUTTI_NCCL_LIBRARY
fi
echo "NCCL: ${TUTTI_NCCL_LIBRARY:-libnccl.so.2}"
if [ -x "$build/tests/gpu/gpu_short" ] && [ ! -f "$build/build.ninja" ]; then
  echo "built elsewhere"
else
  [ -f "$build/build.ninja" ] || limit=120 check "meson setup" meson setup "$build" -Dexamples=false -Dpython_program="$python"
  [ $failed = 0 ] && limit=400 check "build" ninja -C "$build" gpu_tests launcher/tutti launcher/tutti-mpi
fi
[ $failed = 0 ] || end

export GTEST_BRIEF=1 TUTTI_TEST_CCL=nccl NCCL_DEBUG=${NCCL_DEBUG:-WARN}
gpus=$("$build/tests/gpu/gpu_short" gpus | tail -n 1)
case $gpus in [1-9]*) echo "$gpus GPUs" ;; *) echo "$gpus"; failed=1; end ;; esac
check "memory, copies, streams" "$build/tests/gpu/gpu_device_test" \
  --gtest_filter='Gpu.*:OnStreams.peers_*:OnStreams.memory_*:OnStreams.there_are_no_more*'
for n in $(printf "%s\n" 1 2 3 4 "$gpus" | sort -nu); do
  export TUTTI_TEST_WORKERS=$n
  programs="contract communicator" filter='Gpus.*' kinds="thread mpi" how=
  if [ "$n" -gt "$gpus" ]; then  # by turns of some 15 ms each
    [ "$n" -le 3 ] || { skip "$n workers" "3 that share $gpus GPUs are enough"; continue; }
    kinds=mpi how=" that share GPUs" filter='Gpus.*-*.a_difference_among_many_*'
    [ "$n" = 2 ] || programs=contract
  fi
  for kind in $kinds; do
    run=(env TUTTI_TEST_KIND="$kind" ${how:+TUTTI_ALLOW_SHARED_DEVICE=1})
    [ "$kind" = thread ] || run+=(mpirun -n "$n")
    for program in $programs; do check "$program, $n x $kind$how" "${run[@]}" "$build/tests/collective/${program}_test"; done
    limit=100 check "session, $n x $kind$how" "${run[@]}" "$build/tests/gpu/gpu_session_test" --gtest_filter="$filter"
  done
  [ "$n" -gt "$gpus" ] ||
    check "a short program, $n threads" bash -c 'out=$("$0" $1); code=$?; echo "$out"; [ $code = 0 ] && grep -qx done <<<"$out"' "$build/tests/gpu/gpu_short" "$n"
done

nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
if [ -n "$nvcc" ]; then
  export TUTTI_TEST_KERNELS=$build/kernels.so
  check "kernels are compiled" "$nvcc" -O2 -shared -Xcompiler -fPIC -cudart static -Iinclude -Itests tests/gpu/kernels.cu -o "$TUTTI_TEST_KERNELS"
  check "kernels, $gpus x thread" env TUTTI_TEST_KIND=thread TUTTI_TEST_WORKERS="$gpus" "$build/tests/gpu/gpu_kernel_test"
  check "kernels, 2 x mpi" env TUTTI_TEST_KIND=mpi TUTTI_TEST_WORKERS=2 $([ "$gpus" -gt 1 ] || echo TUTTI_ALLOW_SHARED_DEVICE=1) \
    mpirun -n 2 "$build/tests/gpu/gpu_kernel_test"
else
  skip "kernels" "no nvcc"
fi

suffix=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
if [ -f "$build/src/python/tutti/_core$suffix" ] && "$python" -c 'import numpy' 2>/dev/null; then
  export PYTHONPATH=$build/src/python TUTTI_CUDA_LIBRARY=${TUTTI_CUDA_LIBRARY:-libcuda.so.1}
  check "Python, 2 ranks" env $([ "$gpus" -gt 1 ] || echo TUTTI_ALLOW_SHARED_DEVICE=1) \
    mpirun -n 2 "$python" -m tutti tests/gpu/python/ranks.py
  pytest=("$python" -m pytest -q -rs -p no:cacheprovider)
  if ! "$python" -c 'import pytest' 2>/dev/null; then
    skip "Python" "$python has no pytest"
  else
    check_pytest "Python" env TUTTI_TEST_KIND=thread TUTTI_TEST_WORKERS=1 "${pytest[@]}" tests/python/gpu
  fi
  if "$python" -c 'import pytest, cupy' 2>/dev/null; then
    check_pytest "cupy" "${pytest[@]}" tests/gpu/python/test_cupy.py
  else
    skip "cupy" "$python has none"
  fi
  if "$python" -c 'import pytest, torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    check_pytest "torch" "${pytest[@]}" tests/gpu/python/test_torch.py
  else
    skip "torch" "$python has none, or it finds no GPU"
  fi
else
  skip "Python, cupy, torch" "not built for $python, or it has no numpy"
fi

check "by way of the host" env TUTTI_TEST_KIND=mpi TUTTI_TEST_WORKERS=2 TUTTI_TEST_CCL=mpi TUTTI_TEST_GPUS="$gpus" \
  mpirun -n 2 "$build/tests/collective/communicator_test"
check "a rank dies in a collective" env $([ "$gpus" -gt 1 ] || echo TUTTI_ALLOW_SHARED_DEVICE=1) OMPI_MCA_orte_enable_recovery=1 bash -c \
  'out=$(mpirun -n 2 "$0" killed 2>&1); echo "$out"; grep -q "worker 1 .*has ended in the middle of the session" <<<"$out"' \
  "$build/tests/gpu/gpu_short"
if [ "$gpus" = 1 ]; then
  check "two workers on one GPU are refused" bash -c \
    'out=$(mpirun -n 2 "$0" mpi 2>&1); echo "$out"; grep -q "both have the GPU" <<<"$out"' "$build/tests/gpu/gpu_short"
fi
for operation in allreduce broadcast all_to_all; do
  limit=120 check "bench $operation" mpirun -n "$gpus" "$build/launcher/tutti" bench $operation -b 8 -e 128M -f 8 --device cuda
  cat "$build/logs/bench_$operation"
done
end

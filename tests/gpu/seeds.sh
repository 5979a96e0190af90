#!/usr/bin/env bash
# seeds.sh BUILD [FIRST [LAST [KINDS [WORKERS]]]]: sessions on stand-ins for GPUs, with other delays of their streams for each seed: 1 to 20
# on "thread process mpi" with "1 2 3 4" workers. BUILD may be sanitized (.ci/build). Stops after half an hour, and says so. The last line:
# N passed, N failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=$(realpath -- "$1") first=${2:-1} last=${3:-20} kinds=${4:-thread process mpi} counts=${5:-1 2 3 4}
. tests/gpu/standin/env.sh "$build"
. tests/support/mpi_env.sh
export GTEST_BRIEF=1 TUTTI_TEST_CCL=nccl TSAN_OPTIONS=halt_on_error=1:die_after_fork=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
passed=0 failed=0 log=$(mktemp)
trap 'rm -f "$log"' EXIT
for seed in $(seq "$first" "$last"); do
  for kind in $kinds; do
    for workers in $counts; do
      if [ $SECONDS -gt 1800 ]; then echo "stopped before seed $seed, $kind, $workers workers"; break 3; fi
      run=(env STANDIN_SEED="$seed" TUTTI_TEST_KIND="$kind" TUTTI_TEST_WORKERS="$workers")
      leaks=1
      [ "$kind" != mpi ] || { run+=(mpirun -n "$workers"); leaks=0; }  # Open MPI's own
      if ASAN_OPTIONS=detect_leaks=$leaks:allocator_may_return_null=1 timeout -k 10 300 "${run[@]}" "$build/tests/gpu/gpu_session_test" >"$log" 2>&1; then
        passed=$((passed + 1))
      else
        failed=$((failed + 1)); echo "FAILED: seed $seed, $kind, $workers workers"; tail -n 40 "$log"
      fi
    done
  done
done
echo "$passed passed, $failed failed"
exit $((failed > 0))

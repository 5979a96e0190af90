#!/usr/bin/env bash
# check_slurm.sh BUILD_DIR: tutti on a Slurm cluster of 4 nodes with 4 GPUs each (which are not there), all on this machine. Root.
# Exit code 77: no Slurm here.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
[ "$(id -u)" = 0 ] || { echo "skipped: not root"; exit 77; }
for program in slurmctld slurmd munged; do
  command -v $program >/dev/null || [ -x /usr/sbin/$program ] || { echo "skipped: no $program (slurm-wlm, munge)"; exit 77; }
done
state=$(mktemp -d)
trap '"$here/slurm-down" "$state" >/dev/null 2>&1; rm -rf "$state"' EXIT
"$here/slurm-up" "$state" 4 >"$state/up.log" 2>&1 || { cat "$state/up.log"; exit 1; }
[ "$(cat "$state/run/ns")" = 1 ] || { echo "skipped: no namespaces here: nodes would share one address and one /dev/shm"; exit 77; }
. "$state/env"
. "$here/../support/mpi_env.sh"
unset OMPI_MCA_rmaps_base_oversubscribe  # Slurm says how many
export SLURM_PMIX_FENCE=tree  # as tutti run does: docs/cluster.md
tutti=$build/launcher/tutti hello=$build/examples/hello
fail() { echo "FAILED: $1"; [ ! -s "$state/out" ] || tail -n 40 "$state/out"; exit 1; }
# says PATTERN TIMES COMMAND...: succeeds, and so many lines match
says() {
  local pattern=$1 times=$2; shift 2
  timeout 90 "$@" >"$state/out" 2>&1 || fail "$*: exit code $?"
  [ "$(grep -cE -- "$pattern" "$state/out")" = "$times" ] || fail "$*: expected $times times '$pattern'"
}
batch() { timeout 120 sbatch --quiet --wait --output="$state/out" "$@"; }

# by srun: a rank a node, four on one, the digits
says 'hello from worker' 4 srun --mpi=pmix -N4 -n4 "$hello"
says 'hello from worker' 4 srun --mpi=pmix -N1 -n4 "$hello"
says 'accuracy' 1 srun --mpi=pmix -N1 -n4 "$build/examples/digits"

# by tutti run, which takes srun, and by mpirun, in a batch job
cat >"$state/job" <<JOB
#!/bin/bash
cd "$build/.."
"$tutti" run -n 4 --dry-run -- "$hello"
"$tutti" run -n 4 -- "$hello"
"$tutti" run -n 4 --launcher mpirun -- "$hello"
mpirun -n 4 "$hello"
"$tutti" run -n 4 -- bash -c 'exit 5'
echo "exit code \$?"
JOB
batch -N4 -n4 "$state/job" || fail "a batch job"
grep -q '^SLURM_PMIX_FENCE=tree srun --mpi=pmix' "$state/out" || fail "tutti run takes srun in an allocation"
[ "$(grep -cE '^(\[0\] )?hello from worker' "$state/out")" = 12 ] || fail "hello by three launchers"
grep -q '^exit code 5$' "$state/out" || fail "the exit code of a program under srun"

# a script of tutti's own: accepted, runs; its hook saves before the time limit, the job is queued again
export PATH=$build/launcher:$PATH
rm -f "$state/out"
"$tutti" script -N 4 -n 4 --gpus-per-node 2 --time 5 --requeue --signal-before 60 --name own --output "$state/out" -- "$hello" >"$state/own"
sbatch --test-only "$state/own" >/dev/null 2>&1 || fail "sbatch --test-only does not take: $(cat "$state/own")"
timeout 120 sbatch --quiet --wait "$state/own" || fail "a script of tutti's: $(cat "$state/own")"
[ "$(grep -c 'hello from worker' "$state/out")" = 4 ] || fail "a script of tutti's"
"$tutti" script -n 1 --requeue --output "$state/out" -- bash -c 'exit 75' >"$state/own"
job=$(sbatch --parsable "$state/own") || fail "a script that requeues"
for _ in $(seq 100); do scontrol show job "$job" | grep -q 'Restarts=1' && break; sleep 0.2; done
scontrol show job "$job" | grep -qE 'JobState=(PENDING|RUNNING|COMPLETING)' && scontrol show job "$job" | grep -q 'Restarts=1' ||
  fail "a job that ends with 75 is queued again: $(scontrol show job "$job")"  # Slurm starts it two minutes later
scancel "$job"

# which GPU, in each of Slurm's ways to bind them
export TUTTI_TOPOLOGY=$here/node.xml TUTTI_LOG=info
gpus() { # EXPECTED SRUN_OPTIONS...: of the ranks in order
  local expected=$1 got; shift
  timeout 60 srun --mpi=pmix -N1 "$@" bash -c 'exec 2> >(sed "s/^/$SLURM_PROCID /" >&2); exec "$1"' - "$hello" >"$state/out" 2>&1 || fail "$*: exit code $?"
  got=$(grep -E 'GPU cuda' "$state/out" | sort -n | grep -oE 'cuda[0-9]' | tr -d '\nacdu')
  [ "$got" = "$expected" ] || fail "srun $*: ranks got GPUs $got, expected $expected"
}
gpus 0123 -n4 --gpus-per-node=4
gpus 0123 -n4 --gpus-per-task=1
gpus 0123 -n4 --gpus-per-node=4 --gpu-bind=single:1
gpus 0123 -n4 --gpus-per-node=4 --gpu-bind=closest
gpus 3210 -n4 --gpus-per-node=4 --gpu-bind=map_gpu:3,2,1,0
gpus 001 -n3 --gpus-per-node=2
gpus 0011223 -n7 --gpus-per-node=4
unset TUTTI_TOPOLOGY TUTTI_LOG

# a node that crashes ends the job
begun=$SECONDS
(sleep 2; "$here/slurm-node" "$state" n2 crash >/dev/null 2>&1) &
TUTTI_TEST_KIND=mpi TUTTI_TEST_WORKERS=4 TUTTI_TEST_ONE_NODE=0 timeout 60 srun --mpi=pmix -N4 -n4 "$build/tests/control/soak_test" --gtest_brief=1 >"$state/out" 2>&1 && fail "a job whose node has crashed succeeds"
[ $((SECONDS - begun)) -ge 2 ] || fail "it ended before the node crashed"
[ $((SECONDS - begun)) -lt 20 ] || fail "a job whose node has crashed ends after $((SECONDS - begun)) s"
grep -E "rank 1|n2" "$state/out" | grep -qvE "^srun:|slurmstepd" || fail "tutti does not name what is lost"
echo "Slurm, 4 nodes: fine"

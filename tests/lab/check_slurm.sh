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
export SLURM_PMIX_FENCE=ring  # as tutti run does: docs/cluster.md
tutti=$build/launcher/tutti hello=$build/examples/hello
fail() { echo "FAILED: $1"; [ ! -s "$state/out" ] || tail -n 40 "$state/out"; exit 1; }
# says PATTERN TIMES COMMAND...: succeeds, and so many lines match
says() {
  local pattern=$1 times=$2; shift 2
  timeout 90 "$@" >"$state/out" 2>&1 || fail "$*: exit code $?"
  [ "$(grep -cE -- "$pattern" "$state/out")" = "$times" ] || fail "$*: expected $times times '$pattern'"
}
batch() { timeout 300 sbatch --quiet --wait --output="$state/out" "$@"; }

# by srun: a rank a node, four on one, the digits
says 'hello from worker' 4 srun --mpi=pmix -N4 -n4 "$hello"
says 'hello from worker' 4 srun --mpi=pmix -N1 -n4 "$hello"
says 'accuracy' 1 srun --mpi=pmix -N4 -n4 "$build/examples/digits"

# by tutti run, which takes srun, and by mpirun, in a batch job
cat >"$state/job" <<JOB
#!/bin/bash
cd "$build/.."
export TUTTI_HEARTBEAT=30  # four nodes that spin on this machine's few cores, beside CI's builds
"$tutti" run -n 4 --dry-run -- "$hello"
"$tutti" run -n 4 -- "$hello"
"$tutti" run -n 4 --launcher mpirun -- "$hello"
mpirun -n 4 "$hello"
"$tutti" run -n 4 -- bash -c 'exit 5'
echo "exit code \$?"
"$tutti" run -n 4 -- "$build/examples/digits"
"$tutti" run -n 4 --launcher mpirun -- "$build/examples/digits"
mpirun -n 4 "$build/examples/digits"
JOB
batch -N4 -n4 "$state/job" || fail "a batch job"
grep -q '^SLURM_PMIX_FENCE=ring srun --mpi=pmix' "$state/out" || fail "tutti run takes srun in an allocation"
[ "$(grep -cE '^(\[0\] )?hello from worker' "$state/out")" = 12 ] || fail "hello by three launchers"
grep -q '^exit code 5$' "$state/out" || fail "the exit code of a program under srun"
[ "$(grep -c 'accuracy' "$state/out")" = 3 ] || fail "digits by three launchers on four nodes"
says 'hello from worker' 4 salloc --quiet -N2 -n4 mpirun -n 4 "$hello"
says 'hello from worker' 4 salloc --quiet -N2 -n4 "$tutti" run -n 4 -- "$hello"
# its daemons' step inside a step, which has all CPUs
says 'hello from worker' 2 salloc --quiet -N2 -n2 srun -N2 -n2 bash -c "[ \$SLURM_PROCID != 0 ] || timeout 20 $tutti run -n 2 --launcher mpirun -- $hello"
says '^\[[0-3]\] runs on n[24]$' 4 salloc --quiet -N4 --ntasks-per-node=2 "$tutti" run -n 4 --hosts n2,n4 -- bash -c 'echo "runs on $SLURMD_NODENAME"'
says '^\[[01]\] .* CPUs=4 ' 2 salloc --quiet -N2 -n2 -c2 "$tutti" run -n 2 -- bash -c 'scontrol -o show step "$SLURM_JOB_ID.$SLURM_STEP_ID"'  # two for each

# a job that passes its limit, meanwhile: nobody asked to be told before
printf '#!/bin/bash\n"%s" run -n 2 -- sleep 47110\n' "$tutti" >"$state/job"
limited=$(sbatch --parsable --output="$state/limited" -N1 -n2 --time=1 "$state/job") || fail "a job with a time limit"

# how a program ends, a time limit, signals, logs: as under mpirun
cat >"$state/job" <<JOB
#!/bin/bash
"$tutti" run -n 2 -- ./nosuch; echo "no such program: \$?"
"$tutti" run -n 2 -- /etc/passwd; echo "no program: \$?"
for by in srun mpirun; do
  for how in 'exit 3' 'kill -9 \$\$' 'kill -SEGV \$\$'; do
    "$tutti" run -n 2 --launcher \$by -- bash -c "[ \\\${PMIX_RANK:-\\\$SLURM_PROCID} = 0 ] || { \$how; }; sleep 20"
    echo "\$by, \$how: \$?"
  done
  for i in \$(seq 20); do  # srun 22 loses what ranks have said now and then (3 in 80): then nothing tells MPI_Abort's code
    BREAK=abort "$tutti" run -n 2 --launcher \$by -- "$build/tests/launcher/spmd" >"$state/said" 2>&1
    code=\$?
    ! grep -q errorcode "$state/said" || break
  done
  cat "$state/said"
  echo "\$by, abort: \$code"
  for sent in INT TERM HUP; do
    timeout --foreground --preserve-status -s \$sent 4 "$tutti" run -n 2 --launcher \$by -- sleep 47111
    echo "\$by, \$sent: \$?"
  done
done
"$tutti" run -n 2 --timeout 2 --log-dir "$state/logs" -- bash -c 'echo begun; exec sleep 60'
echo "time limit: \$?"
"$tutti" run -n 2 -- bash -c 'trap "echo got; exit 0" USR1; echo ready; while true; do sleep 0.1; done' >"$state/ready" &
for i in \$(seq 100); do [ "\$(grep -c ready "$state/ready")" = 2 ] && break; sleep 0.1; done
kill -USR1 \$!
wait \$!
echo "signal: \$?, \$(grep -c got "$state/ready")"
JOB
batch -N2 -n2 "$state/job"
expected=('no such program: 127' 'no program: 126' 'time limit: 124' 'signal: 0, 2')
for by in srun mpirun; do
  for line in 'exit 3: 3' 'kill -9 $$: 137' 'kill -SEGV $$: 139' 'abort: 7' 'INT: 130' 'TERM: 143' 'HUP: 129'; do expected+=("$by, $line"); done
done
for line in "${expected[@]}"; do
  grep -qFx -- "$line" "$state/out" || fail "expected '$line', came: $(grep -anF -B3 -- "${line%: *}" "$state/out")"
done
! pgrep -fx 'sleep 47111' >/dev/null || fail "ranks are left of a job that was told to end"
[ "$(cat "$state"/logs/rank-*.out)" = $'begun\nbegun' ] || fail "logs under srun"

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
  fail "a job that ends with 75 is queued again: $(scontrol show job "$job")"
scancel "$job"

# a warning before the time limit: the hook saves, the job is queued again, and starts again; by mpirun as well
ways=$build/tests/control/ways
running() { ps -eo args= | grep -c "^$ways [p]reempted"; }  # ranks on all nodes: they share this machine's processes
shows() { # JOB PATTERN SECONDS
  for _ in $(seq $(($3 * 5))); do scontrol show job "$1" | grep -qE "$2" && return; sleep 0.2; done
  fail "a job: expected $2: $(scontrol show job "$1")"
}
at_work() { # TIMES: so often has the program begun
  for _ in $(seq 600); do [ -f "$state/out" ] && [ "$(grep -c 'at work' "$state/out")" -ge "$1" ] && return; sleep 0.1; done
  fail "a job has not begun $1 times"
}
rm -f "$state/out"
"$tutti" script -N 2 -n 4 --time 1 --signal-before 50 --requeue --output "$state/out" -- "$ways" preempted >"$state/own"
job=$(sbatch --parsable "$state/own") || fail "a script with a warning"
shows "$job" Restarts=1 60
grep -q 'saved on 4 workers' "$state/out" || fail "a job that is warned saves"
at_work 2
scancel "$job"
rm -f "$state/out"
"$tutti" script -N 2 -n 4 --time 1 --signal-before 50 --output "$state/out" -- "$ways" preempted | sed 's/ run -n/ run --launcher mpirun -n/' >"$state/own"
job=$(sbatch --parsable "$state/own") || fail "a script with a warning, by mpirun"
shows "$job" 'ExitCode=75:0' 60
grep -q 'saved on 4 workers' "$state/out" || fail "a job that is warned saves, by mpirun"

# scancel ends the ranks, under srun and under mpirun, and what would be queued again otherwise is not
for launcher in srun mpirun; do
  rm -f "$state/out"
  "$tutti" script -N 2 -n 4 --time 5 --signal-before 60 --requeue --output "$state/out" -- "$ways" preempted | sed "s/ run -n/ run --launcher $launcher -n/" >"$state/own"
  job=$(sbatch --parsable "$state/own") || fail "a job to be cancelled"
  at_work 1
  [ "$(running)" -ge 4 ] || fail "a job to be cancelled: $(running) ranks"
  scancel "$job"
  for _ in $(seq 150); do [ "$(running)" = 0 ] && break; sleep 0.1; done
  [ "$(running)" = 0 ] || fail "scancel leaves ranks of $launcher: $(ps -eo pid,args | grep "[p]reempted")"
  shows "$job" 'JobState=CANCELLED' 10
  scontrol show job "$job" | grep -q Restarts=0 || fail "a cancelled job is queued again"
done

# a heterogeneous job: programs run over both components; tutti run says that it does not choose
cat >"$state/job" <<JOB
#!/bin/bash
timeout -k 1 20 srun --mpi=pmix --het-group=0,1 "$hello"  # 22.05's srun does not end, now and then, when all ranks have: pmixp_abort_agent_stop
"$tutti" run -n 5 -- "$hello"
echo "exit code \$?"
"$tutti" run -n 3 -L --het-group=1 -- "$hello"
"$tutti" doctor
JOB
rm -f "$state/out"
timeout 120 sbatch --quiet --wait --output="$state/out" -N1 -n2 : -N2 -n3 "$state/job"
for _ in $(seq 300); do grep -q 'MPI' "$state/out" 2>/dev/null && break; sleep 0.2; done  # sbatch may be told of the end of one component only
[ "$(grep -c '^hello from worker' "$state/out")" = 5 ] && [ "$(grep -c '^\[.\] hello from worker' "$state/out")" = 3 ] || fail "a heterogeneous job"
grep -q '^tutti: run: this allocation has 2 components' "$state/out" && grep -q '^exit code 1$' "$state/out" || fail "tutti run in a heterogeneous job"
grep -qE '^ok +Slurm ' "$state/out" || fail "tutti doctor in an allocation"

# an allocation of one task, and a step in a step, are no fault of the machine's; MPI_Abort's code
cat >"$state/job" <<JOB
#!/bin/bash
srun -n 1 "$tutti" doctor
srun -n 4 --label bash -c '[ \$SLURM_PROCID != 0 ] || "$tutti" run -n 4 -- "$hello"'
JOB
for tasks in 1 4; do
  timeout 120 sbatch --quiet --wait --output="$state/out" -N1 -n$tasks "$state/job"
  grep -qE '^ok +MPI ' "$state/out" && ! grep -q '^PROBLEM' "$state/out" || fail "tutti doctor in a step of an allocation of $tasks"
done
[ "$(grep -c 'hello from worker' "$state/out")" = 4 ] || fail "tutti run in a step"
printf '#!/bin/bash\nBREAK=abort "%s" run -n 3 -- "%s"\necho "exit code $?"\n' "$tutti" "$build/tests/launcher/spmd" >"$state/job"
batch -N3 -n3 "$state/job"
grep -q '^exit code 7$' "$state/out" || fail "MPI_Abort(7) under srun"

# nodes that differ: each has a plan of its own
TUTTI_LOG=info srun --mpi=pmix -N2 -n4 --ntasks-per-node=2 --nodelist=n1,n2 bash -c '[ $SLURMD_NODENAME != n1 ] || export TUTTI_TOPOLOGY=$0; exec "$1"' "$here/node.xml" "$hello" >"$state/out" 2>&1 || fail "nodes that differ"
[ "$(grep -c 'GPU cuda' "$state/out")" = 2 ] && [ "$(grep -c 'hello from worker' "$state/out")" = 4 ] || fail "two ranks of four on a node with GPUs"

# which GPU, in each of Slurm's ways to bind them
export TUTTI_TOPOLOGY=$here/node.xml TUTTI_LOG=info
gpus() { # EXPECTED SRUN_OPTIONS...: of the ranks in order
  local expected=$1 got; shift
  timeout 60 srun --mpi=pmix -N1 "$@" bash -c 'exec 2> >(sed "s/^/$SLURM_PROCID /" >&2); exec "$1"' - "$hello" >"$state/out" 2>&1 || fail "$*: exit code $?"
  got=$(grep -E 'GPU cuda' "$state/out" | sort -n | grep -oE 'cuda[0-9]' | tr -d '\nacdu')
  [ "$got" = "$expected" ] || fail "srun $*: ranks got GPUs $got, expected $expected"
  # programs that are not tutti's, by their parent
  timeout 60 srun -N1 "$@" "$tutti" bind -- bash -c 'echo "$SLURM_PROCID ${TUTTI_GPU:-none}"' >"$state/out" 2>&1 || fail "tutti bind, $*: exit code $?"
  got=$(sort -n "$state/out" | sed -nE 's/^[0-9]+ 0000:0([1-4]):00.0$/\1/p' | tr '1234\n' '0123 ' | tr -d ' ')
  [ "$got" = "$expected" ] || fail "srun $* tutti bind: ranks got GPUs $got, expected $expected"
}
rows=0
while IFS='|' read -r options expected; do  # the guide's table
  gpus "$(tr -d ' ' <<<"$expected")" $options </dev/null  # srun would read the rows
  rows=$((rows + 1))
done < <(sed -nE 's/^\| `(-n[0-9]+ [^`]*)` \| ([0-9 ]+) \|$/\1|\2/p' "$here/../../docs/cluster.md")
[ $rows -ge 13 ] || fail "docs/cluster.md has $rows ways to bind GPUs, expected 13 and more"
# in a batch job, by both launchers, on two nodes
for options in --gpus-per-node=4 --gres=gpu:4 --gpus-per-task=1 --gpus=8 '--gpus-per-node=4 --gpu-bind=single:1'; do
  for launcher in srun mpirun; do
    printf '#!/bin/bash\n"%s" run -n 8 --launcher %s -- "%s"\n' "$tutti" $launcher "$hello" >"$state/job"
    batch -N2 -n8 --ntasks-per-node=4 $options "$state/job" || fail "$launcher in a batch job, $options"
    got=$(sed -nE 's/^\[([0-7])\] \[tutti info (n[1-4]) .* GPU cuda([0-3]) .*/\1 \3/p' "$state/out" | sort -n | cut -d' ' -f2 | tr -d '\n')
    [ "$got" = 01230123 ] || fail "$launcher in a batch job, $options: ranks got GPUs $got"
  done
done
unset TUTTI_TOPOLOGY TUTTI_LOG

# the limit that was passed: the job is over, its ranks are gone
shows "$limited" 'JobState=TIMEOUT' 60
for _ in $(seq 100); do pgrep -fx 'sleep 47110' >/dev/null || break; sleep 0.1; done
! pgrep -fx 'sleep 47110' >/dev/null || fail "ranks are left of a job that has passed its limit"

# a node fails: the script has the job queued again, before Slurm misses the node, and it starts again; one that fails by itself is not
sed 's/^SlurmdTimeout=.*/SlurmdTimeout=300/' -i "$state/etc/slurm.conf" && scontrol reconfigure || fail "scontrol reconfigure"
rm -f "$state/out"
"$tutti" script -N 2 -n 2 --requeue --output "$state/out" -- bash -c 'echo ran; exit 3' >"$state/own"
job=$(sbatch --parsable "$state/own") || fail "a job that fails"
shows "$job" 'JobState=FAILED' 60
scontrol show job "$job" | grep -q Restarts=0 && scontrol show job "$job" | grep -q ExitCode=3:0 || fail "a job that fails by itself: $(scontrol show job "$job")"
rm -f "$state/out"
"$tutti" script -N 2 -n 2 --requeue --output "$state/out" -- "$ways" preempted >"$state/own"
job=$(sbatch --parsable --nodelist=n3,n4 "$state/own") || fail "a job whose node will fail"
at_work 1
"$here/slurm-node" "$state" n4 crash >/dev/null 2>&1
shows "$job" Restarts=1 90
grep -q 'on n4 has not been heard from' "$state/out" || fail "a job whose node has failed names it"
"$here/slurm-node" "$state" n4 start >/dev/null 2>&1
at_work 2
scancel "$job"
for _ in $(seq 200); do [ "$(sinfo -h -N -o %T | grep -c '^idle$')" = 4 ] && break; sleep 0.2; done
[ "$(sinfo -h -N -o %T | grep -c '^idle$')" = 4 ] || fail "a node that is started again is used again: $(sinfo -N)"

# ranks whose process ids, as in containers of their own, mean nothing to each other: each is a node
OMPI_MCA_btl=self,tcp TUTTI_TEST_KIND=mpi TUTTI_TEST_WORKERS=2 TUTTI_TEST_ONE_NODE=0 timeout 60 srun --mpi=pmix -N1 -n2 unshare --pid --fork --mount-proc "$build/tests/control/session_test" --gtest_brief=1 >"$state/out" 2>&1 ||
  fail "ranks in process namespaces of their own"

# a node that crashes ends the job, srun too when Slurm misses it
sed 's/^SlurmdTimeout=.*/SlurmdTimeout=10/' -i "$state/etc/slurm.conf" && scontrol reconfigure || fail "scontrol reconfigure"
begun=$SECONDS
(sleep 2; "$here/slurm-node" "$state" n2 crash >/dev/null 2>&1) &
TUTTI_TEST_KIND=mpi TUTTI_TEST_WORKERS=4 TUTTI_TEST_ONE_NODE=0 timeout 60 srun --mpi=pmix -N4 -n4 "$build/tests/control/soak_test" --gtest_brief=1 >"$state/out" 2>&1 && fail "a job whose node has crashed succeeds"
[ $((SECONDS - begun)) -ge 2 ] || fail "it ended before the node crashed"
[ $((SECONDS - begun)) -lt 20 ] || fail "a job whose node has crashed ends after $((SECONDS - begun)) s"
grep -qE "rank 1 .*on n2 has not been heard from|rank 1 .*n2.* (is gone|has ended|was killed)" "$state/out" || fail "tutti does not name what is lost"
echo "Slurm, 4 nodes: fine"

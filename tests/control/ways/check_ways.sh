#!/usr/bin/env bash
# check_ways.sh MPIRUN WAYS WITHOUT_RUN OWN_MPI FINALISE_ORDER INTEROP: the ways to get a session, and exit codes, with and without a
# launcher. What mostly waits runs side by side.
set -u
. "$(dirname "$0")/../../support/mpi_env.sh"
mpirun=$1 ways=$2 without_run=$3 own_mpi=$4 finalise_order=$5 interop=$6
dir=$(mktemp -d) out=
trap 'rm -rf "$dir"' EXIT
failed() { # WHY, with the end of the output
  { echo "FAILED: $1"; tail -n 30 "$out"; } >>"$dir/failures"
}
expect_now() { # expect_now CODE TEXT COMMAND...; code any: neither 0 nor a time-out
  local code=$1 text=$2 got=0
  shift 2
  out=$(mktemp -p "$dir")
  for _ in 1 2 3; do
    got=0
    timeout 60 "$@" >"$out" 2>&1 || got=$?
    # mpirun 4.1 may crash itself, and print nothing of the abort, when it hears of another rank's MPI_Abort while it ends
    [ $got = 139 ] && grep -q pmix_server_log_fn "$out" || break
  done
  [ "$code" != any ] || { [ $got != 0 ] && [ $got != 124 ] && code=$got; }
  if [ $got != "$code" ] || { [ -n "$text" ] && ! grep -q -- "$text" "$out"; }; then failed "$*: exit code $got, expected $code and '$text'"; fi
}
at_once=3
[ "${mpirun%mpich}" = "$mpirun" ] || at_once=1  # MPICH's ranks spin
expect() { # the same, beside others
  while [ "$(jobs -rp | wc -l)" -ge $at_once ]; do wait -n; done
  expect_now "$@" &
}
expect 7 '' "$ways" return 7
expect 7 '' "$mpirun" -n 3 "$ways" return 7
expect 1 'uncaught exception in the controller: nobody catches this' "$ways" throw
expect 1 'uncaught exception in the controller: nobody catches this' "$mpirun" -n 3 "$ways" throw
expect 0 'mpi session of 1' "$ways" create
expect 0 'mpi session of 3' "$mpirun" -n 3 "$ways" create
expect 0 'process session of 3' "$ways" process 3
expect 0 'mpi session of 2' "$mpirun" -n 3 "$ways" process 2
expect 0 'thread session of 5' "$mpirun" -n 2 "$ways" threads 5
expect 0 'mpi session of 3' "$mpirun" -n 3 "$ways" socket 1 3
expect 0 'mpi session of 4' env TUTTI_RANKS_PER_NODE=2 "$mpirun" -n 4 "$ways" socket 2 2
expect 1 'SocketSession: the job has 1 node(s) with 2 rank(s) each' "$mpirun" -n 2 "$ways" socket 2 1
expect 1 '9 workers asked for, the job has 3 ranks; launch with mpirun -n 9 or more' "$mpirun" -n 3 "$ways" process 9
expect 1 'asked for 1 x 1000' "$ways" socket 1 1000
expect 0 'unreported failure of a session that went out of scope: .*told to' "$ways" drop
expect 0 'unreported failure of a session that went out of scope: .*told to' "$mpirun" -n 2 "$ways" drop
expect 0 'thread session of 3' "$ways" static thread
expect 0 'process session of 3' "$ways" static process
expect 0 'mpi session of 1' "$ways" static mpi
expect 1 'was never shut down' "$mpirun" -n 3 "$ways" static mpi
expect 1 'shutdown while another exception is under way: .*told to' "$ways" shutdown_in_flight
expect 124 'shutdown while another exception is under way: .*the limit has passed' "$ways" stuck_and_thrown thread 1
expect 124 'room for a command at .* has waited [0-9.]* s' "$ways" stuck_full thread 1
expect 124 'room for a command at .* has waited [0-9.]* s' "$ways" stuck_full process 1
expect 124 'room for a command at .* has waited [0-9.]* s' "$mpirun" -n 3 "$ways" stuck_full mpi 1
expect 1 'the first exception' "$mpirun" -n 2 "$ways" shutdown_in_flight
# variables that hold nonsense are an error of whoever started the program
for variable in TUTTI_TIMEOUT TUTTI_HEARTBEAT TUTTI_FAULT TUTTI_PREEMPT_SIGNAL; do
  expect 99 "$variable.*: expected\|TUTTI_FAULT" env $variable=nonsense "$ways" create
done
expect 99 "TUTTI_RANKS_PER_NODE='0': expected an integer from 1" env TUTTI_RANKS_PER_NODE=0 "$mpirun" -n 2 "$ways" create
# a time-out that nobody catches, with a worker that never ends: 124, and the report says who it is
for worker in 0 2; do
  expect 124 'output that was written before' "$ways" stuck thread $worker
  for kind in thread process; do
    expect 124 "worker $worker .*computes ways.stuck in command 2" "$ways" stuck $kind $worker
    expect 124 "waits in barrier #0 of command 2 since .* s for worker $worker" "$ways" stuck_before_barrier $kind $worker
  done
  expect 124 "worker $worker .*computes ways.stuck in command 2" "$mpirun" -n 3 "$ways" stuck mpi $worker
  expect 124 "waits in barrier #0 of command 2 since .* s for worker $worker" "$mpirun" -n 3 "$ways" stuck_before_barrier mpi $worker
  expect 124 "worker $worker .*computes ways.stuck in command 2" env TUTTI_SHARED_MEMORY=0 "$mpirun" -n 3 "$ways" stuck mpi $worker
done
# a launcher that lets the others be when a rank is killed
if "$mpirun" --version | grep -q 'Open MPI'; then  # its exit code is 0 then
  for worker in 0 1 2; do
    expect 0 "worker $worker .pid .* on .*. has ended in the middle of the session, in ways.killed of command" "$mpirun" --mca orte_enable_recovery 1 -n 3 "$ways" killed $worker
  done
  expect 0 "the session made at .*ways.cpp:[0-9]* was lost, and with it this job's ranks" "$mpirun" --mca orte_enable_recovery 1 -n 3 "$ways" killed 2
fi
wait
# a leader that is not heard from: another host that is lost, as far as the rest can tell
expect_now 1 'rank 2 on .* has not been heard from for' env TUTTI_HEARTBEAT=1 TUTTI_RANKS_PER_NODE=1 TUTTI_TRACE="$dir" \
  "$mpirun" -n 3 "$ways" stopped
for worker in 0 1; do  # their last words
  grep -q '"reason":"lost"' "$dir"/tutti-*-100-worker-$worker.json || failed "no last trace of worker $worker: $(ls "$dir")"
done
# asked to make room: the hook runs, the session ends well, and the code says "try again"
preempted() { # SIGNAL COMMAND...
  local signal=$1 pid got
  shift
  out=$(mktemp -p "$dir")
  "$@" >"$out" 2>&1 &
  pid=$!
  for _ in {1..60}; do grep -q 'at work' "$out" && break; sleep 0.5; done
  kill -s "$signal" $pid
  wait $pid
  got=$?
  if [ $got != 75 ] || ! grep -q 'saved on . workers' "$out" || ! grep -q 'the session was shut down after its hook' "$out"; then
    failed "$* preempted by $signal: exit code $got, expected 75"
  fi
}
preempted USR1 "$ways" preempted
# Ctrl-C: the group gets SIGINT; nothing stays behind
interrupted() { # COMMAND...
  local mark pid got left
  out=$(mktemp -p "$dir")
  mark=$(basename "$out")
  TUTTI_TEST_MARK=$mark setsid env --default-signal=INT "$@" >"$out" 2>&1 &  # a shell's background jobs ignore it
  pid=$!
  for _ in {1..150}; do grep -q 'at work' "$out" && break; sleep 0.2; done  # MPICH's launcher returns 0 for ranks in MPI_Init
  sleep 0.5
  kill -s INT -- -$pid
  wait $pid
  got=$?
  sleep 1
  left=$(grep -l "TUTTI_TEST_MARK=$mark" /proc/[0-9]*/environ 2>/dev/null)
  if [ $got = 0 ] || [ -n "$left" ]; then failed "$* interrupted: exit code $got, left: $left"; fi
}
interrupted "$ways" busy thread 1
interrupted "$ways" busy process 1
interrupted "$mpirun" -n 3 "$ways" busy mpi 1
preempted TERM env TUTTI_PREEMPT_SIGNAL=TERM "$ways" preempted
[ "${mpirun%mpich}" != "$mpirun" ] || preempted USR1 "$mpirun" -n 3 "$ways" preempted  # MPICH's launcher forwards no signals
expect 99 "TUTTI_PREEMPT_SIGNAL='HUP': expected USR1 or TERM" env TUTTI_PREEMPT_SIGNAL=HUP "$ways" create
expect 99 'srun --mpi=pmi' env SLURM_STEP_NUM_TASKS=4 "$ways" create
expect 99 'do not know of each other; tutti is built with' env PMI_SIZE=4 SLURM_STEP_NUM_TASKS=4 "$ways" create  # another library's mpirun
expect 0 'mpi session of 1' env TUTTI_ALONE=1 PMI_SIZE=4 OMPI_COMM_WORLD_SIZE=4 SLURM_STEP_NUM_TASKS=4 "$ways" create
expect 0 'mpi session of 1' env SLURM_PTY_PORT=1 SLURM_STEP_NUM_TASKS=4 "$ways" create  # a shell of srun --pty
expect 0 'thread session of 5' env SLURM_STEP_NUM_TASKS=4 "$ways" threads 5
# what fails on one rank alone ends all
# shellcheck disable=SC2016
expect any 'TUTTI_RANKS_PER_NODE' "$mpirun" -n 3 sh -c \
  '[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" != 1 ] || export TUTTI_RANKS_PER_NODE=none; exec "$0" create' "$ways"
expect 99 'TUTTI_RANKS_PER_NODE' env TUTTI_RANKS_PER_NODE=none "$mpirun" -n 2 "$ways" create
# shellcheck disable=SC2016
expect any 'TUTTI_TIMEOUT' "$mpirun" -n 2 sh -c \
  '[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" != 1 ] || export TUTTI_TIMEOUT=none; exec "$0" create' "$ways"
expect 99 "TUTTI_TIMEOUT='none'" env TUTTI_ALONE=1 TUTTI_TIMEOUT=none SLURM_STEP_NUM_TASKS=4 "$ways" create  # no other advice
expect 0 '' "$without_run"
expect 0 'beside: 3, 3' "$mpirun" -n 3 "$own_mpi"
for nodes in TUTTI_NONE=1 TUTTI_RANKS_PER_NODE=2 TUTTI_SHARED_MEMORY=0; do
  expect_now 0 '^finalise: .* wrong: nothing' env $nodes "$mpirun" -n 4 "$finalise_order"
  ! grep -q 'was not matched' "$out" || failed "messages that nobody received"  # UCX under MPICH tells
done
expect 99 'call MPI_Init_thread with it' "$mpirun" -n 2 "$own_mpi" single
expect 99 'MPI has been finalised; what needs its ranks comes before MPI_Finalize' "$mpirun" -n 2 "$own_mpi" finalised
for n in 1 2 3 4; do
  expect 0 '' "$mpirun" -n $n "$interop" sessions
  expect 0 '' env TUTTI_RANKS_PER_NODE=1 "$mpirun" -n $n "$interop" sessions
  expect 0 '' "$mpirun" -n $n "$interop" misuse
done
expect 0 '' "$interop" sessions
expect 0 '' "$mpirun" -n 3 "$interop" lost
expect 0 '' "$mpirun" -n 2 "$interop" single
expect 0 '' "$interop" without_mpi
expect 0 'finalised' "$mpirun" -n 3 "$interop" finalize_live
expect 1 'at work; shut it down before' "$mpirun" -n 3 "$interop" finalize_busy
expect 1 'at work; shut it down before' env TUTTI_RANKS_PER_NODE=1 "$mpirun" -n 3 "$interop" finalize_live
expect 3 'finalised' "$mpirun" -n 3 "$interop" finalize_in_run
expect 1 'MPI_Finalize was called on a worker' "$mpirun" -n 3 "$interop" finalize_in_worker
# more threads than the system gives: an error, not a hang
expect 1 'worker threads could be started' sh -c "ulimit -v 4000000; timeout 60 $ways too_many_threads 3000"
wait
[ ! -s "$dir/failures" ] || { cat "$dir/failures"; exit 1; }

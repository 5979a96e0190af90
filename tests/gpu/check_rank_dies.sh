#!/bin/sh
# check_rank_dies.sh MPIRUN GPU_SHORT LOG: a rank dies while the others wait for it at their GPUs. mpirun lets these be, and rank 0
# says which worker was lost.
set -u
case $("$1" --version) in
*"Open MPI) 4"*) recovery="--mca orte_enable_recovery 1" ;;
*"Open MPI"*) recovery="--runtime-options recover" ;;
*) recovery=-disable-auto-cleanup ;;  # MPICH
esac
# shellcheck disable=SC2086
"$1" $recovery -n 3 "$2" killed >"$3" 2>&1
grep -a "worker 2 .*has ended in the middle of the session" "$3" || { cat "$3"; exit 1; }

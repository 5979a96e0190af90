#!/usr/bin/env bash
# check_idle.sh BUILD_DIR: ranks of an idle session, of a pool without a session, and leaders of several nodes use at most
# 3 % of a core each, measured over four seconds.
set -euo pipefail
. "$(dirname "$0")/../support/mpi_env.sh"
program=$1/tests/control/idle_session
status=0
for mode in "TUTTI_NONE=1 session" "TUTTI_NONE=1 pool" "TUTTI_RANKS_PER_NODE=2 session" "TUTTI_SHARED_MEMORY=0 session"; do
  read -r variable what <<<"$mode"
  env "$variable" mpirun -n 4 "$program" "$what" || status=1
done
exit $status

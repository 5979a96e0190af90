#!/usr/bin/env bash
# on_rank.sh RANK NAME=VALUE PROGRAM [ARGS...]: one rank has another environment than the others
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:?not under mpirun}}
[ "$rank" != "$1" ] || export "${2?}"
shift 2; exec "$@"

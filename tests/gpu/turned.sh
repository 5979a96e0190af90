#!/usr/bin/env bash
# turned.sh PROGRAM [ARGS...]: each rank of a machine with four GPUs counts them from another one on, as `tutti bind` has it
ids=(0 1 2 3 0 1 2 3)
first=$((${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:?not under mpirun}} % 4))
CUDA_VISIBLE_DEVICES=$(IFS=,; echo "${ids[*]:first:4}") exec "$@"

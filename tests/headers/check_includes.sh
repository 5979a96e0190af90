#!/bin/sh
# What system include paths would let through: no public header includes a back end's (interop/mpi.h is the exception).
! grep -rnE '#[[:space:]]*include[[:space:]]*[<"](mpi\.h|cuda|nccl|hwloc|fmt/)' --include='*.h' "$1" | grep -v '/interop/'

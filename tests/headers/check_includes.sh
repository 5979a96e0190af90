#!/bin/sh
# What system include paths would let through: no public header includes a back end's (interop/mpi.h and testing.h are the exceptions).
! grep -rnE '#[[:space:]]*include[[:space:]]*[<"](mpi\.h|cuda|nccl|hwloc|fmt/)' --include='*.h' "$1" | grep -vE '/interop/|/testing\.h:'

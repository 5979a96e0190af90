#!/bin/sh
# build_leaders.sh BUILD_DIR: the simulation of the tree between leaders (leaders.cpp) into BUILD_DIR/tests/sim. What calls MPI is compiled
# against SMPI's; the rest is that of the build. Needs Debian's libsimgrid-dev.
set -eu
cd "$(dirname "$0")/../.."
mkdir -p "$1/tests/sim"
SMPI_NO_UNDEFINED_CHECK='' smpicxx -std=c++20 -O1 -Iinclude -Isrc -include tests/sim/real_names.h tests/sim/leaders.cpp \
  src/control/mpi/leader.cpp src/control/mpi/leader_life.cpp src/control/mpi/leader_looks.cpp src/collective/mpi/mpi_handles.cpp \
  "$1/src/libtutti_internal.a" -lfmt -ldw -o "$1/tests/sim/leaders"

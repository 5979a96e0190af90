#!/bin/sh
# build_leaders.sh BUILD_DIR: the simulation of the tree between leaders (leaders.cpp) into BUILD_DIR/tests/sim. What calls MPI is compiled
# against SMPI's; the rest is that of the build, whose objects hold several files each: those that call Open MPI, too. These are linked,
# with empty stand-ins for Open MPI's handles, and never called. Needs Debian's libsimgrid-dev.
set -eu
cd "$(dirname "$0")/../.."
mkdir -p "$1/tests/sim"
nm -u "$1/src/libtutti_internal.a" | sed -nE 's/^ +U (ompi_[a-z0-9_]+|OMPI_[A-Z_]+)$/char \1[8];/p' | sort -u >"$1/tests/sim/handles.c"
gcc -c -fPIC "$1/tests/sim/handles.c" -o "$1/tests/sim/handles.o"
SMPI_NO_UNDEFINED_CHECK='' smpicxx -std=c++20 -O1 -Iinclude -Isrc -include tests/sim/real_names.h tests/sim/leaders.cpp \
  src/control/channel/mpi/leader.cpp src/control/channel/mpi/leader_agreement.cpp src/control/channel/mpi/leader_life.cpp src/control/channel/mpi/leader_looks.cpp src/control/channel/mpi/leader_questions.cpp src/collective/mpi/mpi_handles.cpp \
  -Wl,--allow-multiple-definition "$1/tests/sim/handles.o" "$1/src/libtutti_internal.a" -lfmt -ldw -lhwloc -lz $(pkg-config --libs libisal 2>/dev/null) -ldl -o "$1/tests/sim/leaders"

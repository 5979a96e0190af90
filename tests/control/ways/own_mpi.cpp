// A program with MPI of its own: initialised before, used beside, finalised after. argv[1] = "single": with too low a thread
// level; "finalised": too early.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tutti/tutti.h"

static const bool registered = tutti::register_global_func("own.sum", [] {
  // the user's own traffic on MPI_COMM_WORLD, inside a worker function
  int one = 1, sum = 0;
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  return sum;
});

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, argc > 1 && !std::strcmp(argv[1], "single") ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE, &provided);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc > 1 && !std::strcmp(argv[1], "finalised")) {
    MPI_Finalize();
    return tutti::run(argc, argv, [](int, char**) { return 3; });
  }
  // what the launcher left is no business of ours: MPI is there
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"}) unsetenv(name);
  int sum = 0;
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  const int code = tutti::run(argc, argv, [size](int, char**) {
    auto session = tutti::Session::create();
    tutti::DRef all = session.get_global_func("own.sum")();
    for (int w = 0; w < size; ++w)
      if (all.debug_get_from_remote(w) != tutti::Value(size)) return 1;
    return 0;
  });
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized) return 3;  // it was not tutti's to finalise
  int again = 0;
  MPI_Allreduce(&rank, &again, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) std::printf("beside: %d, %d\n", sum, again);
  MPI_Finalize();
  return code ? code : sum == again ? 0 : 4;
}

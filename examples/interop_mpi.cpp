// An MPI program that is SPMD from start to end and borrows a controller for a while: rank 0 looks at how unevenly the particles
// lie on the ranks and moves them; the ranks exchange them with MPI calls of their own.
// mpirun -n 4 build/examples/interop_mpi [particles of the last rank]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <numeric>
#include <vector>

#include "tutti/interop/mpi.h"
#include "tutti/tutti.h"

namespace {

std::vector<double> particles;  // of this rank

// where every rank's particles go: a prefix sum over the peers, then one all-to-all, in plain MPI on the workers' communicator
const bool registered[] = {
    tutti::register_global_func("balance.count", [] { return static_cast<int64_t>(particles.size()); }),
    tutti::register_global_func(
        "balance.move",
        [](const tutti::Shape& targets) {
          const MPI_Comm comm = tutti::interop::communicator(tutti::worker::world());
          const int64_t mine = static_cast<int64_t>(particles.size());
          int64_t first = 0;  // of my particles, counted over all ranks
          MPI_Exscan(&mine, &first, 1, MPI_INT64_T, MPI_SUM, comm);
          if (tutti::worker::id() == 0) first = 0;
          std::vector<int> send, receive(targets.size()), from{0}, to{0};
          for (int64_t begin = 0; int64_t count : targets) {
            const int64_t end = begin + count;
            send.push_back(static_cast<int>(std::max<int64_t>(0, std::min(end, first + mine) - std::max(begin, first))));
            begin = end;
          }
          MPI_Alltoall(send.data(), 1, MPI_INT, receive.data(), 1, MPI_INT, comm);
          std::partial_sum(send.begin(), send.end(), std::back_inserter(from));
          std::partial_sum(receive.begin(), receive.end(), std::back_inserter(to));
          std::vector<double> moved(static_cast<size_t>(to.back()));
          MPI_Alltoallv(particles.data(), send.data(), from.data(), MPI_DOUBLE, moved.data(), receive.data(), to.data(),
                        MPI_DOUBLE, comm);
          particles = std::move(moved);
        }),
};

}  // namespace

int main(int argc, char** argv) {
  int provided = 0, rank = 0, size = 1;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (rank == size - 1) particles.assign(static_cast<size_t>(argc > 1 ? std::atoll(argv[1]) : 1000), 0.5);  // all on one rank

  if (auto session = tutti::interop::session_from(MPI_COMM_WORLD)) {  // rank 0; the others are workers until it is over
    tutti::DRef count = session.get_global_func("balance.count")();
    int64_t total = 0;
    for (int w = 0; w < size; ++w) total += count.debug_get_from_remote(w).as<int64_t>();
    tutti::Shape targets;
    for (int w = 0; w < size; ++w) targets.push_back(total * (w + 1) / size - total * w / size);
    session.get_global_func("balance.move")(targets);
    session.shutdown();
  }

  const int64_t mine = static_cast<int64_t>(particles.size());  // and on, as before
  int64_t most = 0, least = 0, all = 0;
  MPI_Reduce(&mine, &most, 1, MPI_INT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
  MPI_Reduce(&mine, &least, 1, MPI_INT64_T, MPI_MIN, 0, MPI_COMM_WORLD);
  MPI_Reduce(&mine, &all, 1, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  int bad = rank == 0 && most - least > 1;
  if (rank == 0)
    std::printf("%lld particles, %lld to %lld a rank\n", static_cast<long long>(all), static_cast<long long>(least),
                static_cast<long long>(most));
  MPI_Bcast(&bad, 1, MPI_INT, 0, MPI_COMM_WORLD);
  MPI_Finalize();
  return bad;
}

// `tutti` itself does without MPI: what runs on ranks is tutti-mpi, beside it.
#include "bench/bench.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "run/command.h"

namespace tutti::bench {
namespace {

int become_ranks(char** argv) {
  const std::string program = launcher::this_program() + "-mpi";
  execv(program.c_str(), argv);
  fmt::print(stderr, "tutti: {}: {}; it is installed beside tutti\n", program, std::strerror(errno));
  return 127;
}

}  // namespace

int price(int, char** argv) { return become_ranks(argv); }
int control(int, char** argv, const Options&) { return become_ranks(argv); }
int copy(int, char** argv, const Options&) { return become_ranks(argv); }
int redistribute(int, char** argv, const Options&, const std::string&) { return become_ranks(argv); }
int checkpoint(int, char** argv, const Options&, const std::string&, const std::string&) { return become_ranks(argv); }
int collective(int, char** argv, const std::string&, const CollectiveOptions&) { return become_ranks(argv); }

}  // namespace tutti::bench

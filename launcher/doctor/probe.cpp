// tutti-mpi probe: what `tutti doctor` starts on ranks.
#include <fmt/format.h>
#include <mpi.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "commands.h"
#include "core/env.h"

namespace {

int probe() {
  int provided = 0, rank = 0, ranks = 1;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> library{};
  int size = 0;
  MPI_Get_library_version(library.data(), &size);
  // around the ring, too large to be buffered
  constexpr int kBytes = 1 << 20;
  std::vector<char> sent(kBytes, static_cast<char>(rank)), received(kBytes);
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  MPI_Sendrecv(sent.data(), kBytes, MPI_BYTE, next, 0, received.data(), kBytes, MPI_BYTE, previous, 0, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  const bool is_right = received == std::vector<char>(kBytes, static_cast<char>(previous));
  std::string words = library.data();
  words = words.substr(0, words.find(','));
  words = words.substr(0, words.find_last_not_of(" \n\t", words.find('\n')) + 1);
  const nlohmann::json said{
      {"rank", rank}, {"ranks", ranks}, {"host", tutti::detail::host_name()}, {"library", words}, {"thread_level", provided}};
  fmt::print("tutti-probe {}\n", said.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  std::fflush(stdout);
  MPI_Finalize();
  return is_right ? 0 : 1;
}

}  // namespace

void tutti::launcher::add_probe(CLI::App& app, int& code) {
  app.add_subcommand("probe", "for tutti doctor")->callback([&code] { code = probe(); });
}

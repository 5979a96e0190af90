#include "control/channel/mpi/place_ranks.h"

#include "collective/mpi/mpi_handles.h"
#include "core/log.h"
#include "core/wire.h"
#include "topology/bind.h"
#include "topology/discover.h"

namespace tutti::detail {
namespace {

using topology::Assignment, topology::Binding, topology::IndexSet, topology::Self;

std::vector<std::byte> encode(const Self& self) {
  Writer out;
  out.list(self.cpus.indices());
  out.put(static_cast<uint32_t>(self.variables.size()));
  for (const auto& [name, value] : self.variables) out.text(name), out.text(value);
  return std::move(out.bytes());
}
Self decode_self(std::span<const std::byte> bytes) {
  Reader in(bytes);
  Self self{.cpus = IndexSet(in.list<int>()), .variables = {}};
  for (auto left = in.get<uint32_t>(); left > 0; --left) {
    std::string name = in.text();
    self.variables[std::move(name)] = in.text();
  }
  return self;
}

std::vector<std::byte> encode(const Assignment& a) {
  Writer out;
  out.put(a.is_bound);
  out.list(a.cpus.indices());
  out.list(a.memory);
  for (const std::string& text : {a.gpu, a.gpu_pci, a.nic, a.why}) out.text(text);
  return std::move(out.bytes());
}
Assignment decode_assignment(std::span<const std::byte> bytes) {
  Reader in(bytes);
  Assignment a;
  a.is_bound = in.get<bool>();
  a.cpus = IndexSet(in.list<int>());
  a.memory = in.list<int>();
  for (std::string* text : {&a.gpu, &a.gpu_pci, &a.nic, &a.why}) *text = in.text();
  return a;
}

struct Share {
  std::vector<std::byte> bytes;
  std::vector<int> sizes, places;  // by rank
  void add(const std::vector<std::byte>& more) {
    places.push_back(static_cast<int>(bytes.size()));
    sizes.push_back(static_cast<int>(more.size()));
    bytes.insert(bytes.end(), more.begin(), more.end());
  }
};

/// Never throws: others wait.
Share plan_for(const std::vector<std::span<const std::byte>>& said, Binding binding) {
  std::vector<Assignment> assignments;
  try {
    std::vector<Self> ranks;
    ranks.reserve(said.size());
    for (const auto& bytes : said) ranks.push_back(decode_self(bytes));
    assignments = assign(topology::discover(), ranks, binding);
  } catch (const std::exception& error) {
    assignments.assign(said.size(), {});
    for (Assignment& assignment : assignments) assignment.why = error.what();
  }
  Share share;
  for (const Assignment& assignment : assignments) share.add(encode(assignment));
  return share;
}

void apply(Assignment assignment) {
  if (assignment.is_bound) try {
      const std::string problem = topology::bind({.cpus = assignment.cpus, .memory = assignment.memory});
      if (!problem.empty()) assignment.why += "; " + problem;
    } catch (const std::exception& error) {
      assignment.is_bound = false;
      assignment.why = error.what();
    }
  log(LogLevel::kInfo, "CPUs {}{}{}: {}", to_string(assignment.cpus),
      assignment.gpu.empty() ? "" : ", GPU " + assignment.gpu + " " + assignment.gpu_pci,
      assignment.nic.empty() ? "" : ", network card " + assignment.nic, assignment.why);
  topology::set_assignment(std::move(assignment));
}

}  // namespace

void place_ranks(MPI_Comm machine, Binding binding) {
  if (binding == Binding::kNone) return;
  int rank = 0, size = 1;
  MPI_Comm_rank(machine, &rank);
  MPI_Comm_size(machine, &size);
  const auto n = static_cast<size_t>(size);
  const auto mine = encode(topology::self());
  int my_size = static_cast<int>(mine.size());
  std::vector<int> sizes(n), places(n);
  check_mpi(MPI_Gather(&my_size, 1, MPI_INT, sizes.data(), 1, MPI_INT, 0, machine), "MPI_Gather");
  int total = 0;
  for (size_t r = 0; r < n; ++r) places[r] = total, total += sizes[r];
  std::vector<std::byte> all(static_cast<size_t>(total));
  check_mpi(MPI_Gatherv(mine.data(), my_size, MPI_BYTE, all.data(), sizes.data(), places.data(), MPI_BYTE, 0, machine),
            "MPI_Gatherv");
  Share share;
  if (rank == 0) {
    std::vector<std::span<const std::byte>> said;
    for (size_t r = 0; r < n; ++r)
      said.push_back(std::span(all).subspan(static_cast<size_t>(places[r]), static_cast<size_t>(sizes[r])));
    share = plan_for(said, binding);
  }
  check_mpi(MPI_Scatter(share.sizes.data(), 1, MPI_INT, &my_size, 1, MPI_INT, 0, machine), "MPI_Scatter");
  std::vector<std::byte> assigned(static_cast<size_t>(my_size));
  check_mpi(MPI_Scatterv(share.bytes.data(), share.sizes.data(), share.places.data(), MPI_BYTE, assigned.data(), my_size,
                         MPI_BYTE, 0, machine),
            "MPI_Scatterv");
  apply(decode_assignment(assigned));
}

}  // namespace tutti::detail

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::topology {

/// What a unit of flow costs: the first difference decides.
using Cost = std::array<int64_t, 4>;

/// Sends units through a network as cheaply as can be: successive shortest paths (Ahuja, Magnanti, Orlin: Network Flows,
/// chapter 9.7). For networks of some thousands of edges. Equal inputs have equal results.
class MinCostFlow {
 public:
  explicit MinCostFlow(size_t nodes) : edges_from_(nodes) {}
  size_t add_edge(size_t from, size_t to, int64_t capacity,
                  Cost cost = {});                      ///< its number; costs of a cycle must not be below zero
  int64_t send(size_t from, size_t to, int64_t units);  ///< how many could be sent
  int64_t flow(size_t edge) const { return edges_[2 * edge + 1].room; }

 private:
  struct Edge {
    size_t to;
    int64_t room;
    Cost cost;
  };
  std::vector<Edge> edges_;  // each beside its reverse
  std::vector<std::vector<size_t>> edges_from_;
};

}  // namespace tutti::topology

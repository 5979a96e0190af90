#include "topology/min_cost_flow.h"

#include <algorithm>
#include <deque>
#include <optional>

namespace tutti::topology {
namespace {

Cost plus(Cost a, const Cost& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}
Cost minus(const Cost& a) { return {-a[0], -a[1], -a[2], -a[3]}; }

}  // namespace

size_t MinCostFlow::add_edge(size_t from, size_t to, int64_t capacity, Cost cost) {
  edges_from_[from].push_back(edges_.size());
  edges_.push_back({to, capacity, cost});
  edges_from_[to].push_back(edges_.size());
  edges_.push_back({from, 0, minus(cost)});
  return edges_.size() / 2 - 1;
}

int64_t MinCostFlow::send(size_t from, size_t to, int64_t units) {
  constexpr size_t kNone = SIZE_MAX;
  int64_t sent = 0;
  while (sent < units) {
    std::vector<std::optional<Cost>> cheapest(edges_from_.size());
    std::vector<size_t> by(edges_from_.size(), kNone);
    std::vector<bool> waits(edges_from_.size());
    std::deque<size_t> queue{from};
    cheapest[from] = Cost{};
    while (!queue.empty()) {  // Bellman and Ford, by a queue
      const size_t node = queue.front();
      queue.pop_front();
      waits[node] = false;
      for (const size_t e : edges_from_[node]) {
        const Edge& edge = edges_[e];
        if (edge.room == 0) continue;
        const Cost cost = plus(*cheapest[node], edge.cost);
        if (cheapest[edge.to] && *cheapest[edge.to] <= cost) continue;
        cheapest[edge.to] = cost;
        by[edge.to] = e;
        if (!waits[edge.to]) queue.push_back(edge.to);
        waits[edge.to] = true;
      }
    }
    if (!cheapest[to]) break;
    int64_t more = units - sent;
    for (size_t node = to; node != from; node = edges_[by[node] ^ 1].to) more = std::min(more, edges_[by[node]].room);
    for (size_t node = to; node != from; node = edges_[by[node] ^ 1].to) {
      edges_[by[node]].room -= more;
      edges_[by[node] ^ 1].room += more;
    }
    sent += more;
  }
  return sent;
}

}  // namespace tutti::topology

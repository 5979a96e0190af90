#include "topology/index_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "tutti/error.h"

namespace tutti::topology {
namespace {

constexpr int kMost = 1 << 20;

}  // namespace

IndexSet::IndexSet(std::initializer_list<int> indices) : IndexSet(std::vector<int>(indices)) {}
IndexSet::IndexSet(const std::vector<int>& indices) {
  for (const int index : indices) insert(index);
}

void IndexSet::insert(int index) {
  const auto place = std::ranges::lower_bound(indices_, index);
  if (place == indices_.end() || *place != index) indices_.insert(place, index);
}
void IndexSet::insert(const IndexSet& other) {
  std::vector<int> both;
  std::ranges::set_union(indices_, other.indices_, std::back_inserter(both));
  indices_ = std::move(both);
}
bool IndexSet::contains(int index) const { return std::ranges::binary_search(indices_, index); }

IndexSet operator&(const IndexSet& a, const IndexSet& b) {
  IndexSet both;
  for (const int index : a)
    if (b.contains(index)) both.insert(index);
  return both;
}
bool intersect(const IndexSet& a, const IndexSet& b) {
  return std::ranges::any_of(a, [&](int index) { return b.contains(index); });
}

std::string to_string(const IndexSet& set) {
  std::string text;
  const auto& all = set.indices();
  for (size_t i = 0; i < all.size();) {
    size_t last = i;
    while (last + 1 < all.size() && all[last + 1] == all[last] + 1) ++last;
    fmt::format_to(std::back_inserter(text), "{}{}", text.empty() ? "" : ",", all[i]);
    if (last > i) fmt::format_to(std::back_inserter(text), "-{}", all[last]);
    i = last + 1;
  }
  return text;
}

IndexSet parse_index_set(std::string_view text) {
  const auto refuse = [&] { throw UsageError(fmt::format("'{}' is no list of numbers such as 0-3,8", text)); };
  IndexSet set;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&] {
    int value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || value < 0 || value >= kMost) refuse();
    at = next;
    return value;
  };
  while (at != end) {
    const int first = number();
    int last = first;
    if (at != end && *at == '-') ++at, last = number();
    if (last < first) refuse();
    for (int i = first; i <= last; ++i) set.insert(i);
    if (at == end) break;
    if (*at != ',' || ++at == end) refuse();
  }
  return set;
}

}  // namespace tutti::topology

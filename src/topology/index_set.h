// Sets of small numbers: CPUs, NUMA nodes, as the operating system counts them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::topology {

class IndexSet {
 public:
  IndexSet() = default;
  IndexSet(std::initializer_list<int> indices);
  explicit IndexSet(const std::vector<int>& indices);
  void insert(int index);
  void insert(const IndexSet& other);
  bool contains(int index) const;
  bool empty() const { return indices_.empty(); }
  size_t size() const { return indices_.size(); }
  const std::vector<int>& indices() const { return indices_; }  ///< ascending
  auto begin() const { return indices_.begin(); }
  auto end() const { return indices_.end(); }
  friend bool operator==(const IndexSet&, const IndexSet&) = default;
  friend auto operator<=>(const IndexSet&, const IndexSet&) = default;

 private:
  std::vector<int> indices_;
};

IndexSet operator&(const IndexSet& a, const IndexSet& b);
bool intersect(const IndexSet& a, const IndexSet& b);

std::string to_string(const IndexSet& set);       ///< "0-3,8", as Linux writes them; "" if empty
IndexSet parse_index_set(std::string_view text);  ///< the inverse.  @throws UsageError

}  // namespace tutti::topology

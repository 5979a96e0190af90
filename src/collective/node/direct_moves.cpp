#include "collective/node/direct_moves.h"

#include <algorithm>
#include <numeric>

#include "collective/reduce.h"

namespace tutti::detail {
namespace {

constexpr int64_t kRelayed = int64_t{256} << 10;  // at a time

/// Where the part of one among `of` begins, in whole cache lines.
int64_t cut(int64_t bytes, int64_t i, int64_t of) { return i == of ? bytes : bytes / of * i / 64 * 64; }

}  // namespace

char* DirectMoves::src_of(int64_t r, int64_t begin, int64_t bytes) const {
  const Arrival& member = members[static_cast<size_t>(r)];
  return r == rank ? static_cast<char*>(src.data) + begin : node.peers->map(member.worker, src_operand(member), begin, bytes);
}
char* DirectMoves::dst_of(int64_t r, int64_t begin, int64_t bytes) const {
  const Arrival& member = members[static_cast<size_t>(r)];
  return r == rank ? static_cast<char*>(dst.data) + begin : node.peers->map(member.worker, dst_operand(member), begin, bytes);
}
bool DirectMoves::is_in_place(int64_t r) const {
  const Arrival& a = members[static_cast<size_t>(r)];
  const Operand from = src_operand(a), to = dst_operand(a);
  return from.where == to.where && from.extent == to.extent && from.offset == to.offset;
}

/// Everyone reduces one slice, and stores it into everyone's dst.
void DirectMoves::allreduce(ReduceOp op) {
  const int64_t total = dst.size_bytes(), begin = cut(total, rank, size()), bytes = cut(total, rank + 1, size()) - begin;
  std::vector<const char*> from;
  std::vector<char*> to;
  for (int64_t r = 0; r < size(); ++r) {
    from.push_back(src_of(r, begin, bytes));
    to.push_back(dst_of((r + rank) % size(), begin, bytes));
  }
  reduce(op, dst.dtype, from, to, bytes / dst.dtype.size_bytes());
  hand_over();
}

void DirectMoves::reduce_scatter(ReduceOp op) {
  const int64_t bytes = dst.size_bytes();
  std::vector<const char*> from;
  for (int64_t r = 0; r < size(); ++r) from.push_back(src_of(r, rank * bytes, bytes));
  char* const to[] = {dst.at(0)};
  reduce(op, dst.dtype, from, to, dst.count);
  hand_over();
}

void DirectMoves::allgather() {
  const int64_t bytes = src.size_bytes();
  for (int64_t i = 0; i < size(); ++i) {
    const int64_t r = (rank + i) % size();  // not all from the same one at a time
    copy(dst_of(rank, r * bytes, bytes), src_of(r, 0, bytes), bytes);
  }
  hand_over();
}

/// A root that has nothing to copy for itself brings everyone the last part.
void DirectMoves::broadcast(int root, bool reaches_all) {
  const int64_t total = dst.size_bytes();
  const bool root_helps = reaches_all && is_in_place(root);
  const int64_t pulled = root_helps ? cut(total, size() - 1, size()) : total;
  if (rank != root || !root_helps) copy(dst.at(0), src_of(root, 0, pulled), pulled);
  else
    for (int64_t r = 0; r < size(); ++r)
      copy(dst_of(r, pulled, total - pulled), src_of(root, pulled, total - pulled), total - pulled);
  hand_over();
}

/// The others follow through the root's dst.
void DirectMoves::relay(int root) {
  const int64_t total = dst.size_bytes();
  for (int64_t begin = 0, piece = 1; begin < total; begin += kRelayed, ++piece) {
    const int64_t bytes = std::min(kRelayed, total - begin);
    if (rank != root) hand_over.await(members[static_cast<size_t>(root)], static_cast<uint64_t>(piece));
    copy(dst.at(0) + begin, rank == root ? src.at(0) + begin : dst_of(root, begin, bytes), bytes);
    hand_over.done();
  }
  hand_over();
}

void DirectMoves::scatter(int root, const std::vector<int64_t>& counts) {
  const int64_t before = std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
  copy(dst.at(0), src_of(root, before * dst.dtype.size_bytes(), dst.size_bytes()), dst.size_bytes());
  hand_over();
}

void DirectMoves::push_scatter(int root, const std::vector<int64_t>& counts) {
  int64_t begin = 0;
  for (int64_t r = 0; rank == root && r < size(); ++r) {
    const int64_t bytes = counts[static_cast<size_t>(r)] * dst.dtype.size_bytes();
    copy(dst_of(r, 0, bytes), src.at(0) + begin, bytes);
    begin += bytes;
  }
  hand_over();
}

void DirectMoves::gather(int root, const std::vector<int64_t>& counts) {
  const int64_t before = std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
  copy(dst_of(root, before * src.dtype.size_bytes(), src.size_bytes()), src.at(0), src.size_bytes());
  hand_over();
}

void DirectMoves::all_to_all() {
  const int64_t bytes = src.size_bytes() / size();
  for (int64_t i = 0; i < size(); ++i) {
    const int64_t r = (rank + i) % size();
    copy(dst_of(rank, r * bytes, bytes), src_of(r, rank * bytes, bytes), bytes);
  }
  hand_over();
}

void DirectMoves::all_to_all_v(const std::vector<int64_t>& counts) {
  const int64_t item = dst.dtype.size_bytes();
  const auto before = [](const std::vector<int64_t>& list, int64_t first, int64_t end) {
    return std::accumulate(list.begin() + first, list.begin() + end, int64_t{0});
  };
  for (int64_t i = 0; i < size(); ++i) {
    const int64_t r = (rank + i) % size(), bytes = counts[static_cast<size_t>(size() + r)] * item;
    const auto& theirs = members[static_cast<size_t>(r)].counts;
    copy(dst.at(before(counts, size(), size() + r)), src_of(r, before(theirs, 0, rank) * item, bytes), bytes);
  }
  hand_over();
}

void DirectMoves::exchange(const ReadSources& read) {
  read([this](int r, int64_t begin, int64_t bytes) -> const char* { return src_of(r, begin, bytes); });
  hand_over();
}

void DirectMoves::send_recv() {
  const int64_t total = (rank == 0 ? src : dst).size_bytes(), begin = cut(total, rank, 2),
                bytes = cut(total, rank + 1, 2) - begin;
  copy(dst_of(1, begin, bytes), src_of(0, begin, bytes), bytes);
  hand_over();
}

}  // namespace tutti::detail

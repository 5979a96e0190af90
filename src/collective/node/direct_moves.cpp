#include "collective/node/direct_moves.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "collective/reduce.h"

namespace tutti {
namespace {

constexpr int64_t kTooLargeForCaches = int64_t{16} << 20;

void copy(char* to, const char* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

/// Where the part of one among `of` begins, in whole cache lines.
int64_t cut(int64_t bytes, int64_t i, int64_t of) { return i == of ? bytes : bytes / of * i / 64 * 64; }

}  // namespace

/// Everyone reduces one slice, and stores it into everyone's dst.
void DirectMoves::allreduce(ReduceOp op, int64_t count) {
  const int64_t total = bytes(count), begin = cut(total, rank, size()), end = cut(total, rank + 1, size());
  const bool in_place = std::equal(src.begin(), src.end(), dst.begin());
  std::vector<const char*> from;
  std::vector<char*> to;
  for (size_t r = 0; r < src.size(); ++r) {
    from.push_back(src[r] + begin);
    to.push_back(dst[(r + static_cast<size_t>(rank)) % dst.size()] + begin);
  }
  reduce(op, dtype, from, to, (end - begin) / dtype.size_bytes(),
         total >= kTooLargeForCaches && !in_place ? Stores::kStreamed : Stores::kCached);
  hand_over();
}

void DirectMoves::reduce_scatter(ReduceOp op, int64_t part) {
  std::vector<const char*> from;
  for (char* s : src) from.push_back(s + rank * bytes(part));
  char* const to[] = {dst[static_cast<size_t>(rank)]};
  reduce(op, dtype, from, to, part, bytes(part) >= kTooLargeForCaches ? Stores::kStreamed : Stores::kCached);
  hand_over();
}

void DirectMoves::allgather(int64_t part) {
  char* to = dst[static_cast<size_t>(rank)];
  for (int64_t i = 0; i < size(); ++i) {
    const int64_t r = (rank + i) % size();  // not all from the same one at a time
    copy(to + r * bytes(part), src[static_cast<size_t>(r)], bytes(part));
  }
  hand_over();
}

/// A root that has nothing to copy for itself brings everyone the last part.
void DirectMoves::broadcast(int root, int64_t count, bool reaches_all) {
  const char* from = src[static_cast<size_t>(root)];
  const bool root_helps = reaches_all && dst[static_cast<size_t>(root)] == from;
  const int64_t pulled = root_helps ? cut(bytes(count), size() - 1, size()) : bytes(count);
  if (rank != root || !root_helps)
    copy(dst[static_cast<size_t>(rank)], from, pulled);
  else
    for (char* to : dst) copy(to + pulled, from + pulled, bytes(count) - pulled);
  hand_over();
}

void DirectMoves::scatter(int root, const std::vector<int64_t>& counts) {
  const int64_t before = std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
  copy(dst[static_cast<size_t>(rank)], src[static_cast<size_t>(root)] + bytes(before), bytes(counts[static_cast<size_t>(rank)]));
  hand_over();
}

void DirectMoves::gather(int root, const std::vector<int64_t>& counts) {
  const int64_t before = std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
  copy(dst[static_cast<size_t>(root)] + bytes(before), src[static_cast<size_t>(rank)], bytes(counts[static_cast<size_t>(rank)]));
  hand_over();
}

void DirectMoves::all_to_all(int64_t part) {
  for (int64_t i = 0; i < size(); ++i) {
    const int64_t r = (rank + i) % size();
    copy(dst[static_cast<size_t>(rank)] + r * bytes(part), src[static_cast<size_t>(r)] + rank * bytes(part), bytes(part));
  }
  hand_over();
}

void DirectMoves::send_recv(int64_t count) {
  const int64_t begin = cut(bytes(count), rank, 2), end = cut(bytes(count), rank + 1, 2);
  copy(dst[1] + begin, src[0] + begin, end - begin);
  hand_over();
}

}  // namespace tutti

#include "collective/node/staged_moves.h"

#include <algorithm>
#include <numeric>

#include "collective/reduce.h"

namespace tutti::detail {
namespace {

/// What is only moved goes by bytes: an element may be larger than a piece.
Buffer as_bytes(Buffer b) { return {b.data, b.size_bytes(), kUInt8}; }
std::vector<int64_t> as_bytes(std::vector<int64_t> counts, DType dtype) {
  for (int64_t& n : counts) n *= dtype.size_bytes();
  return counts;
}

}  // namespace

/// publish(begin, n, at) writes elements begin.. of a piece into our staging memory from byte `at` on; take(begin, n, at) reads
/// them in the others'. Who publishes the next piece but one comes from a hand-over that all reached after they took this one.
template <class Publish, class Take>
void StagedMoves::in_turns(int64_t count, int64_t most, int64_t half_bytes, Publish publish, Take take) {
  int64_t at = 0;
  for (int64_t begin = 0; begin < count; begin += most, at = half_bytes - at) {
    const int64_t n = std::min(most, count - begin);
    publish(begin, n, at);
    hand_over();
    take(begin, n, at);
  }
  hand_over();  // all have taken the last
}

/// Everyone reduces a slice of each piece and leaves it where the others fetch it, while the next piece is published.
void StagedMoves::allreduce(Buffer src, Buffer dst, ReduceOp op) {
  const int64_t item = src.dtype.size_bytes(), quarter = static_cast<int64_t>(node.staging_bytes) / 4 / 64 * 64,
                most = quarter / item;
  const int64_t pieces = (src.count + most - 1) / most;
  const auto length = [&](int64_t piece) { return std::min(most, src.count - piece * most); };
  const auto in = [&](int64_t r, int64_t piece) { return staging(r) + piece % 2 * quarter; };
  const auto out = [&](int64_t r, int64_t piece) { return staging(r) + (2 + piece % 2) * quarter; };
  const auto cut = [&](int64_t piece, int64_t r) { return r == size() ? length(piece) : length(piece) / size() * r; };
  const auto publish = [&](int64_t piece) { copy(in(rank, piece), src.at(piece * most), length(piece) * item); };
  std::vector<const char*> from(members.size());
  if (pieces > 0) publish(0);
  for (int64_t piece = 0; piece <= pieces; ++piece) {
    hand_over();
    if (piece < pieces) {
      const int64_t begin = cut(piece, rank);
      for (int64_t r = 0; r < size(); ++r) from[static_cast<size_t>(r)] = in(r, piece) + begin * item;
      char* const to[] = {out(rank, piece) + begin * item, dst.at(piece * most + begin)};
      reduce(op, src.dtype, from, to, cut(piece, rank + 1) - begin);
    }
    if (piece > 0)
      for (int64_t r = 0; r < size(); ++r)
        if (const int64_t begin = cut(piece - 1, r); r != rank)
          copy(dst.at((piece - 1) * most + begin), out(r, piece - 1) + begin * item, (cut(piece - 1, r + 1) - begin) * item);
    if (piece + 1 < pieces) publish(piece + 1);
  }
  hand_over();
}

void StagedMoves::reduce_scatter(Buffer src, Buffer dst, ReduceOp op) {
  const int64_t item = src.dtype.size_bytes(), half = static_cast<int64_t>(node.staging_bytes) / 2, most = half / item / size();
  std::vector<const char*> from(members.size());
  in_turns(
      dst.count, most, half,
      [&](int64_t begin, int64_t n, int64_t at) {
        for (int64_t r = 0; r < size(); ++r) copy(staging(rank) + at + r * n * item, src.at(r * dst.count + begin), n * item);
      },
      [&](int64_t begin, int64_t n, int64_t at) {
        for (int64_t r = 0; r < size(); ++r) from[static_cast<size_t>(r)] = staging(r) + at + rank * n * item;
        char* const to[] = {dst.at(begin)};
        reduce(op, src.dtype, from, to, n);
      });
}

void StagedMoves::allgather(Buffer src, Buffer dst) {
  src = as_bytes(src), dst = as_bytes(dst);
  const int64_t item = 1, half = static_cast<int64_t>(node.staging_bytes) / 2;
  in_turns(
      src.count, half / item, half,
      [&](int64_t begin, int64_t n, int64_t at) { copy(staging(rank) + at, src.at(begin), n * item); },
      [&](int64_t begin, int64_t n, int64_t at) {
        for (int64_t r = 0; r < size(); ++r) copy(dst.at(r * src.count + begin), staging(r) + at, n * item);
      });
}

void StagedMoves::broadcast(Buffer src, Buffer dst, int root) {
  src = as_bytes(src), dst = as_bytes(dst);
  const int64_t item = 1, half = static_cast<int64_t>(node.staging_bytes) / 2;
  in_turns(
      dst.count, half / item, half,
      [&](int64_t begin, int64_t n, int64_t at) {
        if (rank == root) copy(staging(rank) + at, src.at(begin), n * item);
      },
      [&](int64_t begin, int64_t n, int64_t at) {
        if (rank != root || src.data != dst.data) copy(dst.at(begin), staging(root) + at, n * item);
      });
}

void StagedMoves::scatter(Buffer src, Buffer dst, int root, const std::vector<int64_t>& element_counts) {
  const std::vector<int64_t> counts = as_bytes(element_counts, dst.dtype);
  src = as_bytes(src), dst = as_bytes(dst);
  const int64_t item = 1, half = static_cast<int64_t>(node.staging_bytes) / 2, most = half / item / size();
  in_turns(
      *std::max_element(counts.begin(), counts.end()), most, half,
      [&](int64_t begin, int64_t n, int64_t at) {
        if (rank != root) return;
        for (int64_t r = 0, first = 0; r < size(); first += counts[static_cast<size_t>(r++)])
          copy(staging(rank) + at + r * most * item, src.at(first + begin),
               std::min(n, counts[static_cast<size_t>(r)] - begin) * item);
      },
      [&](int64_t begin, int64_t n, int64_t at) {
        if (begin < dst.count)  // a member without a part has no memory
          copy(dst.at(begin), staging(root) + at + rank * most * item, std::min(n, dst.count - begin) * item);
      });
}

void StagedMoves::gather(Buffer src, Buffer dst, int root, const std::vector<int64_t>& element_counts) {
  const std::vector<int64_t> counts = as_bytes(element_counts, src.dtype);
  src = as_bytes(src), dst = as_bytes(dst);
  const int64_t item = 1, half = static_cast<int64_t>(node.staging_bytes) / 2;
  in_turns(
      *std::max_element(counts.begin(), counts.end()), half / item, half,
      [&](int64_t begin, int64_t n, int64_t at) {
        if (begin < src.count) copy(staging(rank) + at, src.at(begin), std::min(n, src.count - begin) * item);
      },
      [&](int64_t begin, int64_t n, int64_t at) {
        if (rank != root) return;
        for (int64_t r = 0, first = 0; r < size(); first += counts[static_cast<size_t>(r++)])
          copy(dst.at(first + begin), staging(r) + at, std::min(n, counts[static_cast<size_t>(r)] - begin) * item);
      });
}

void StagedMoves::all_to_all(Buffer src, Buffer dst) {
  src = as_bytes(src), dst = as_bytes(dst);
  const int64_t item = 1, half = static_cast<int64_t>(node.staging_bytes) / 2, most = half / item / size();
  const int64_t part = src.count / size();
  in_turns(
      part, most, half,
      [&](int64_t begin, int64_t n, int64_t at) {
        for (int64_t r = 0; r < size(); ++r) copy(staging(rank) + at + r * n * item, src.at(r * part + begin), n * item);
      },
      [&](int64_t begin, int64_t n, int64_t at) {
        for (int64_t r = 0; r < size(); ++r) copy(dst.at(r * part + begin), staging(r) + at + rank * n * item, n * item);
      });
}

void StagedMoves::all_to_all_v(Buffer src, Buffer dst, const std::vector<int64_t>& element_counts) {
  const std::vector<int64_t> counts = as_bytes(element_counts, dst.dtype);
  int64_t longest = 0;  // of all members' parts: all take as many turns
  for (const Arrival& member : members)
    longest = std::max(longest, *std::max_element(member.counts.begin(), member.counts.end()));
  longest *= dst.dtype.size_bytes();
  src = as_bytes(src), dst = as_bytes(dst);
  const int64_t half = static_cast<int64_t>(node.staging_bytes) / 2, most = half / size();
  in_turns(
      longest, most, half,
      [&](int64_t begin, int64_t n, int64_t at) {
        for (int64_t r = 0, first = 0; r < size(); first += counts[static_cast<size_t>(r++)])
          copy(staging(rank) + at + r * most, src.at(first + begin), std::min(n, counts[static_cast<size_t>(r)] - begin));
      },
      [&](int64_t begin, int64_t n, int64_t at) {
        for (int64_t r = 0, first = 0; r < size(); first += counts[static_cast<size_t>(size() + r++)])
          copy(dst.at(first + begin), staging(r) + at + rank * most,
               std::min(n, counts[static_cast<size_t>(size() + r)] - begin));
      });
}

void StagedMoves::exchange(Buffer dst, const std::function<int64_t(int64_t)>& cut) {
  const int64_t item = dst.dtype.size_bytes(), half = static_cast<int64_t>(node.staging_bytes) / 2;
  int64_t longest = 0;
  for (int64_t r = 0; r < size(); ++r) longest = std::max(longest, cut(r + 1) - cut(r));
  const auto left = [&](int64_t r, int64_t begin, int64_t n) { return std::min(n, cut(r + 1) - cut(r) - begin) * item; };
  in_turns(
      longest, half / item, half,
      [&](int64_t begin, int64_t n, int64_t at) { copy(staging(rank) + at, dst.at(cut(rank) + begin), left(rank, begin, n)); },
      [&](int64_t begin, int64_t n, int64_t at) {
        for (int64_t r = 0; r < size(); ++r)
          if (r != rank) copy(dst.at(cut(r) + begin), staging(r) + at, left(r, begin, n));
      });
}

void StagedMoves::send_recv(Buffer src, Buffer dst) {
  src = as_bytes(src), dst = as_bytes(dst);
  const Buffer mine = rank == 0 ? src : dst;
  const int64_t item = 1, half = static_cast<int64_t>(node.staging_bytes) / 2;
  in_turns(
      mine.count, half / item, half,
      [&](int64_t begin, int64_t n, int64_t at) {
        if (rank == 0) copy(staging(0) + at, src.at(begin), n * item);
      },
      [&](int64_t begin, int64_t n, int64_t at) {
        if (rank == 1) copy(dst.at(begin), staging(0) + at, n * item);
      });
}

}  // namespace tutti::detail

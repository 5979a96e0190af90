#include "agreement/board.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <optional>

#include "agreement/remote_verdict.h"

namespace {

using namespace tutti;
using namespace tutti::detail;

struct Made {
  explicit Made(int num_workers)
      : workers(static_cast<size_t>(num_workers)), memory(Board::size_bytes(num_workers, workers.size()) / 64) {
    std::iota(workers.begin(), workers.end(), 0);
    board.emplace(reinterpret_cast<std::byte*>(memory.data()), num_workers, workers);
  }
  struct alignas(64) Line {
    std::byte bytes[64]{};
  };
  std::vector<int32_t> workers;
  std::vector<Line> memory;
  std::optional<Board> board;
};

template <class Message>
std::vector<std::byte> encoded(const Message& message) {
  Writer out;
  encode(out, message);
  return {out.bytes().begin(), out.bytes().end()};
}

TEST(Board, has_room_for_the_longest_verdict) {
  for (const int n : {1, 2, 8, 9, 16, 64, 500}) {
    Made made(n);
    RemoteVerdict verdict{.id = {world_key(), 1, 0}};
    verdict.why.message = std::string(10000, 'x');
    verdict.counts.assign(static_cast<size_t>(n), std::vector<int64_t>(kMostSplitCounts, -1));  // a split
    const auto split = encoded(verdict);
    ASSERT_NO_THROW(made.board->verdict(n - 1).write(split)) << n << " workers: " << split.size() << " bytes";
    verdict.counts.assign(static_cast<size_t>(n), {});  // gather to the last
    verdict.counts.back().resize(static_cast<size_t>(n));
    ASSERT_NO_THROW(made.board->verdict(0).write(encoded(verdict))) << n;
  }
}

TEST(Board, has_room_for_the_longest_arrival) {
  for (const int n : {1, 2, 8, 9, 16, 64, 500}) {
    Made made(n);
    Arrival arrival{.worker = n - 1, .id = {world_key(), 1, 0}};
    arrival.members = made.workers;
    arrival.counts.resize(std::max(2 * static_cast<size_t>(n), kMostSplitCounts));
    arrival.left.resize(kMostLeft);
    const auto bytes = encoded(arrival);
    ASSERT_NO_THROW(made.board->arrival(n - 1).write(bytes)) << n << " workers: " << bytes.size() << " bytes";
  }
}

TEST(Board, parts_of_members_do_not_overlap) {
  constexpr int kWorkers = 3;
  Made made(kWorkers);
  Board& board = *made.board;
  for (int worker = 0; worker < kWorkers; ++worker) {
    const std::vector<std::byte> text(4096, std::byte(worker + 1));
    board.arrival(worker).write(text);
    board.verdict(worker).write(text);
    board.failures(worker).write(text);
    board.member(worker).finished_seq = static_cast<uint64_t>(worker) + 1;
    for (int line = 0; line < Board::kLines; ++line)
      std::memset(board.attached_bytes(worker, line), worker * 2 + line + 1, kAttachedBytes);
  }
  for (int worker = 0; worker < kWorkers; ++worker) {
    std::vector<std::byte> bytes;
    for (const SharedRecord& record : {board.arrival(worker), board.verdict(worker), board.failures(worker)}) {
      ASSERT_TRUE(record.read(bytes));
      EXPECT_EQ(bytes, std::vector<std::byte>(4096, std::byte(worker + 1)));
    }
    EXPECT_EQ(board.member(worker).finished_seq, static_cast<uint64_t>(worker) + 1);
    for (int line = 0; line < Board::kLines; ++line) {
      EXPECT_EQ(board.line(worker, line).version(), 0u);
      for (const size_t at : {size_t{0}, kAttachedBytes - 1})
        EXPECT_EQ(board.attached_bytes(worker, line)[at], std::byte(worker * 2 + line + 1));
    }
  }
}

}  // namespace

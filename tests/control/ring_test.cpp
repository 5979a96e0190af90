// A byte stream with one writer and several readers, on private memory.
#include "control/segment/ring.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <utility>

#include "core/wire.h"
#include "tutti/error.h"

namespace {

using namespace tutti;
using namespace tutti::detail;

struct Stream {
  explicit Stream(size_t readers, size_t bytes = 256) : memory(bytes), tails(readers) {}
  RingWriter writer() {
    std::vector<std::atomic<uint64_t>*> all;
    for (auto& tail : tails) all.push_back(&tail);
    return {memory, &head, all};
  }
  RingReader reader(size_t i) { return {memory, &head, &tails[i]}; }

  std::vector<std::byte> memory;
  std::atomic<uint64_t> head{0};
  std::vector<std::atomic<uint64_t>> tails;
};

std::vector<std::byte> bytes(size_t count, unsigned seed = 0) {
  std::vector<std::byte> all(count);
  for (size_t i = 0; i < count; ++i) all[i] = static_cast<std::byte>((seed + i * 7) & 0xff);
  return all;
}

TEST(Ring, takes_what_it_has_space_for) {
  Stream stream(1);
  RingWriter writer = stream.writer();
  EXPECT_EQ(writer.space(256), 256u);
  EXPECT_EQ(writer.write_some(bytes(200)), 200u);
  EXPECT_EQ(writer.write_some(bytes(200)), 56u);
  EXPECT_EQ(writer.write_some(bytes(1)), 0u);
  RingReader reader = stream.reader(0);
  EXPECT_TRUE(reader.readable());
  reader.consume(10);
  EXPECT_EQ(writer.space(1), 0u);  // the reader tells later
  reader.tell();
  EXPECT_EQ(writer.space(1), 10u);
}

TEST(Ring, the_slowest_reader_holds_the_writer) {
  Stream stream(3);
  RingWriter writer = stream.writer();
  std::vector<RingReader> readers{stream.reader(0), stream.reader(1), stream.reader(2)};
  EXPECT_EQ(writer.write_some(bytes(256)), 256u);
  for (const auto& [r, read] : {std::pair{0, 100}, {1, 50}, {2, 150}}) {
    RingReader& reader = readers[static_cast<size_t>(r)];
    EXPECT_TRUE(reader.readable());
    EXPECT_EQ(reader.peek().size(), 256u);
    reader.consume(static_cast<size_t>(read));
    reader.tell();
  }
  EXPECT_EQ(writer.consumed(), 50u);
  EXPECT_EQ(writer.space(51), 50u);
}

TEST(Ring, a_piece_ends_where_the_memory_does) {
  Stream stream(1);
  RingWriter writer = stream.writer();
  RingReader reader = stream.reader(0);
  writer.write_some(bytes(200));
  ASSERT_TRUE(reader.readable());
  reader.consume(200);
  reader.tell();
  EXPECT_EQ(writer.write_some(bytes(100, 5)), 100u);
  ASSERT_TRUE(reader.readable());
  EXPECT_EQ(reader.peek().size(), 56u);
  const auto first = std::vector(reader.peek().begin(), reader.peek().end());
  reader.consume(56);
  ASSERT_TRUE(reader.readable());
  EXPECT_EQ(reader.peek().size(), 44u);
  auto all = first;
  all.insert(all.end(), reader.peek().begin(), reader.peek().end());
  EXPECT_EQ(all, bytes(100, 5));
}

TEST(Ring, a_reader_that_comes_later_begins_where_its_tail_stands) {
  Stream stream(1);
  RingWriter writer = stream.writer();
  writer.write_some(bytes(30));
  stream.tails[0] = 20;
  RingReader reader = stream.reader(0);
  ASSERT_TRUE(reader.readable());
  EXPECT_EQ(reader.peek().size(), 10u);
}

// every reader gets every frame, of any size beside the ring's, whoever is slow
TEST(Ring, frames_of_any_size_reach_all_readers) {
  for (const size_t readers : {1, 2, 3, 8}) {
    Stream stream(readers, 1024);
    std::mt19937 random(static_cast<unsigned>(readers));
    std::vector<std::vector<std::byte>> sent;
    for (const size_t size : {0, 1, 7, 8, 9, 1015, 1016, 1017, 1024, 5000})
      sent.push_back(bytes(size, static_cast<unsigned>(size)));
    for (int i = 0; i < 300; ++i) sent.push_back(bytes(random() % 400, random()));
    std::vector<std::thread> threads;
    std::vector<size_t> wrong(readers, 0), got(readers, 0);
    for (size_t r = 0; r < readers; ++r)
      threads.emplace_back([&, r] {
        RingReader reader = stream.reader(r);
        FrameReader frames;
        std::mt19937 pace(static_cast<unsigned>(r));
        while (got[r] < sent.size()) {
          if (auto frame = frames.poll(reader)) wrong[r] += *frame != sent[got[r]++];
          else if (pace() % 4 == 0) std::this_thread::yield();
        }
      });
    RingWriter writer = stream.writer();
    for (const auto& payload : sent) {
      const auto frame = framed(payload);
      for (std::span<const std::byte> rest = frame; !rest.empty();) {
        rest = rest.subspan(writer.write_some(rest));
        if (!rest.empty()) std::this_thread::yield();
      }
    }
    for (auto& thread : threads) thread.join();
    for (size_t r = 0; r < readers; ++r) EXPECT_EQ(wrong[r], 0u) << "reader " << r << " of " << readers;
    EXPECT_EQ(writer.consumed(), stream.head.load());
  }
}

TEST(Frames, come_in_pieces_of_any_size) {
  std::vector<std::byte> stream;
  for (const size_t size : {0, 5, 300}) {
    const auto frame = framed(bytes(size));
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  for (size_t piece = 1; piece < 20; ++piece) {
    FrameReader frames;
    std::vector<size_t> sizes;
    for (size_t at = 0; at < stream.size(); at += piece) {
      auto rest = std::span<const std::byte>(stream).subspan(at, std::min(piece, stream.size() - at));
      while (!rest.empty())
        if (const auto frame = frames.poll(rest)) sizes.push_back(frame->size());
    }
    EXPECT_EQ(sizes, (std::vector<size_t>{0, 5, 300})) << "pieces of " << piece;
    EXPECT_FALSE(frames.is_inside());
  }
}

TEST(Frames, a_length_that_is_impossible_is_an_error_and_a_large_one_takes_no_memory) {
  Writer impossible, large;
  impossible.put(uint64_t{1} << 50);
  large.put(uint64_t{1} << 39);
  FrameReader frames;
  std::span<const std::byte> rest = impossible.view();
  EXPECT_THROW(frames.poll(rest), WireError);
  FrameReader others;
  rest = large.view();
  EXPECT_EQ(others.poll(rest), std::nullopt);
  EXPECT_TRUE(others.is_inside());
}

}  // namespace

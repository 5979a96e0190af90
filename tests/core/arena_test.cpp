#include "core/arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <random>

#include "core/memory_limit.h"
#include "tutti/tensor.h"

namespace {

using namespace tutti;
using namespace tutti::detail;

TEST(Arena, blocks_are_apart_and_found) {
  Arena& arena = Arena::here();
  std::mt19937 random(1);
  std::map<char*, size_t> blocks;
  for (int i = 0; i < 2000; ++i) {
    if (blocks.size() < 50 && random() % 2) {
      const size_t size = Arena::kLeast + random() % (1 << (14 + random() % 9));
      auto* block = static_cast<char*>(arena.allocate(size));
      ASSERT_NE(block, nullptr);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % 4096, 0u);
      const auto next = blocks.lower_bound(block);
      ASSERT_TRUE(next == blocks.end() || block + size <= next->first);
      ASSERT_TRUE(next == blocks.begin() || block >= std::prev(next)->first + std::prev(next)->second);
      block[0] = block[size - 1] = 1;
      blocks[block] = size;
      EXPECT_TRUE(arena.find(block + size / 2, size / 2).has_value());
    } else if (!blocks.empty()) {
      const auto it = std::next(blocks.begin(), static_cast<ptrdiff_t>(random() % blocks.size()));
      ASSERT_TRUE(arena.free(it->first));
      blocks.erase(it);
    }
  }
  for (const auto& [block, size] : blocks) arena.free(block);
}

TEST(Arena, what_is_free_makes_one_block_again) {
  Arena& arena = Arena::here();
  std::vector<void*> blocks;
  for (size_t i = 0; i < Arena::kExtent / Arena::kLeast; ++i) blocks.push_back(arena.allocate(Arena::kLeast));
  const auto first = arena.find(blocks.front(), 1);
  for (void* block : blocks) arena.free(block);
  void* whole = arena.allocate(Arena::kExtent);
  EXPECT_EQ(arena.find(whole, 1)->extent, first->extent);
  arena.free(whole);
}

TEST(Arena, peers_read_what_was_written) {
  const Tensor t = Tensor::full<int32_t>({100000}, 7);
  const auto place = Arena::here().find(t.data(), static_cast<size_t>(t.size_bytes()));
  ASSERT_TRUE(place.has_value());
  const SharedMemory mapped = SharedMemory::open(getpid(), place->fd);
  EXPECT_EQ(std::memcmp(mapped.data() + place->offset, t.data(), static_cast<size_t>(t.size_bytes())), 0);
}

TEST(Arena, other_memory_is_none_of_its_own) {
  int here = 0;
  EXPECT_FALSE(Arena::here().find(&here, sizeof here).has_value());
  EXPECT_FALSE(Arena::here().free(&here));
  EXPECT_EQ(Arena::here().allocate(Arena::kLeast - 1), nullptr);
  void* block = Arena::here().allocate(Arena::kLeast);
  EXPECT_FALSE(Arena::here().find(block, size_t{1} << 40).has_value());
  Arena::here().free(block);
}

TEST(Arena, keeps_a_limit_of_free_memory) {
  Arena& arena = Arena::here();
  std::vector<void*> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(arena.allocate(Arena::kExtent));
  for (void* block : blocks) arena.free(block);
  EXPECT_GT(arena.cached_bytes(), 0u);
  EXPECT_LE(arena.cached_bytes(), Arena::kMostCached);
}

TEST(Arena, keeps_what_was_freed_last) {
  Arena& arena = Arena::here();
  std::vector<void*> used, others;
  while (arena.cached_bytes() >= Arena::kExtent && used.size() < 20) used.push_back(arena.allocate(Arena::kExtent));
  void* block = arena.allocate(2 * Arena::kExtent);
  for (size_t i = 0; i < used.size() + 4; ++i) others.push_back(arena.allocate(Arena::kExtent));
  for (void* other : others) arena.free(other);  // as much as may be kept
  arena.free(block);
  unsigned char is_there = 0;
  ASSERT_EQ(::mincore(block, 1, &is_there), 0);
  EXPECT_TRUE(is_there);
  for (void* each : used) arena.free(each);
  EXPECT_LE(arena.cached_bytes(), Arena::kMostCached);
}

TEST(Arena, keeps_as_much_as_is_in_use) {
  if (const auto left = memory_left(); left && *left < 32 * Arena::kExtent) return;  // a control group has no room for that
  Arena& arena = Arena::here();
  std::vector<void*> used, freed;
  for (int i = 0; i < 6; ++i) used.push_back(arena.allocate(Arena::kExtent)), freed.push_back(arena.allocate(Arena::kExtent));
  for (void* block : freed) arena.free(block);
  EXPECT_EQ(arena.cached_bytes(), 6 * Arena::kExtent);
  EXPECT_GT(arena.cached_bytes(), Arena::kMostCached);
  for (void* block : used) arena.free(block);
  EXPECT_LE(arena.cached_bytes(), Arena::kMostCached);
}

TEST(Arena, memory_given_back_is_zero_and_works_again) {
  const size_t size = 2 * Arena::kMostCached;  // more than is kept
  auto* block = static_cast<char*>(Arena::here().allocate(size));
  ASSERT_NE(block, nullptr);
  block[size - 1] = 1;
  Arena::here().free(block);
  EXPECT_LE(Arena::here().cached_bytes(), Arena::kMostCached);
  auto* again = static_cast<char*>(Arena::here().allocate(size));
  ASSERT_NE(again, nullptr);
  again[size - 1] = 2;
  Arena::here().free(again);
}

TEST(Arena, a_fork_takes_its_own_extents) {
  const Tensor before = Tensor::full<int32_t>({10000}, 1);
  const pid_t child = fork();
  if (child == 0) {
    const Tensor mine = Tensor::full<int32_t>({10000}, 2);
    const bool apart = Arena::here().find(mine.data(), 1) && !Arena::here().find(before.data(), 1);
    Tensor copy = before;
    copy = Tensor();
    _exit(apart && before.values<int32_t>()[0] == 1 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(before.values<int32_t>()[9999], 1);
  EXPECT_TRUE(Arena::here().find(before.data(), 1).has_value());
}

}  // namespace

#include "core/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstring>
#include <thread>

#include "core/doorbell.h"
#include "core/shared_record.h"
#include "tutti/error.h"

namespace {

using namespace tutti;
using namespace tutti::detail;

int open_descriptors() {
  int n = 0;
  for (int fd = 0; fd < 1024; ++fd) n += fcntl(fd, F_GETFD) != -1;
  return n;
}

TEST(SharedMemory, a_peer_sees_what_the_creator_writes_and_nothing_stays_behind) {
  const int before = open_descriptors();
  {
    SharedMemory mine = SharedMemory::create(8192), peer = SharedMemory::open(getpid(), mine.fd());
    std::strcpy(reinterpret_cast<char*>(mine.data()), "hello");
    EXPECT_STREQ(reinterpret_cast<char*>(peer.data()), "hello");
    EXPECT_EQ(peer.size_bytes(), 8192u);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(SharedMemory, is_its_owners_alone) {
  struct stat status {};
  ASSERT_EQ(fstat(SharedMemory::create(4096).fd(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST(SharedMemory, the_size_is_sealed) {
  SharedMemory memory = SharedMemory::create(4096);
  EXPECT_NE(ftruncate(memory.fd(), 100), 0);
  EXPECT_NE(ftruncate(memory.fd(), 10000), 0);
}

TEST(SharedMemory, refuses_what_is_not_sealed_memory) {
  EXPECT_THROW(SharedMemory::open(getpid(), 999), SystemError);
  EXPECT_THROW(SharedMemory::open(999999999, 3), SystemError);
  Fd file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_THROW(SharedMemory::open(getpid(), file.get()), SystemError);
}

TEST(Fd, is_no_standard_stream) {
  const int kept = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
  close(STDIN_FILENO);
  {
    const Fd file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    EXPECT_GE(file.get(), 3);
    EXPECT_EQ(fcntl(file.get(), F_GETFD), FD_CLOEXEC);
    EXPECT_GE(SharedMemory::create(4096).fd(), 3);
    EXPECT_EQ(fcntl(STDIN_FILENO, F_GETFD), -1);
    Fd other;
    other.reset(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    EXPECT_GE(other.get(), 3);
  }
  if (kept >= 0) dup2(kept, STDIN_FILENO), close(kept);
}

TEST(SharedRecord, readers_never_see_half_a_record) {
  std::vector<uint64_t> memory(SharedRecord::footprint(256) / 8);
  SharedRecord record(reinterpret_cast<std::byte*>(memory.data()), 256);
  std::vector<std::byte> out;
  EXPECT_TRUE(record.read(out));
  EXPECT_TRUE(out.empty());
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (int i = 1; !stop; i = i % 200 + 1)
      record.write(std::vector<std::byte>(static_cast<size_t>(i), static_cast<std::byte>(i)));
  });
  for (int i = 0; i < 20000; ++i) {
    if (!record.read(out)) continue;
    for (std::byte b : out) ASSERT_EQ(static_cast<size_t>(b), out.size());
  }
  stop = true;
  writer.join();
  EXPECT_THROW(record.write(std::vector<std::byte>(257)), std::length_error);
}

TEST(Doorbell, wakes_sleepers_and_times_out) {
  Doorbell bell;
  WaitPolicy asleep_at_once{.spin = {}, .yield = {}};
  EXPECT_FALSE(wait_until(bell, asleep_at_once, Clock::now() + std::chrono::milliseconds(5), [] { return false; }));
  std::atomic<int> turn{0};
  std::thread other([&] {
    for (int i = 0; i < 1000; ++i) {
      while (!wait_until(bell, asleep_at_once, Clock::now() + std::chrono::seconds(10), [&] { return turn % 2 == 1; })) FAIL();
      ++turn;
      bell.ring();
    }
  });
  for (int i = 0; i < 1000; ++i) {
    ++turn;
    bell.ring();
    ASSERT_TRUE(wait_until(bell, asleep_at_once, Clock::now() + std::chrono::seconds(10), [&] { return turn % 2 == 0; }));
  }
  other.join();
  EXPECT_EQ(turn, 2000);
}

TEST(SharedRecord, read_next_gives_each_version_once_also_when_it_looked_while_one_was_written) {
  alignas(8) std::byte memory[SharedRecord::footprint(8)] = {};
  const std::byte content[8] = {};
  SharedRecord record(memory, sizeof content);
  std::vector<std::byte> out;
  uint64_t seen = 0;
  EXPECT_FALSE(record.read_next(out, seen));
  record.write(content);
  const uint64_t half_written = record.version() - 1;
  std::memcpy(memory, &half_written, sizeof half_written);
  EXPECT_FALSE(record.read_next(out, seen));
  EXPECT_EQ(seen, 0u);  // what is being written has not been seen
  const uint64_t written = half_written + 1;
  std::memcpy(memory, &written, sizeof written);
  EXPECT_TRUE(record.read_next(out, seen));
  EXPECT_FALSE(record.read_next(out, seen));
}

}  // namespace

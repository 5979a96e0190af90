#include "core/memory_limit.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace {

using namespace tutti;
using namespace tutti::detail;
namespace fs = std::filesystem;

class MemoryLimit : public testing::Test {
 protected:
  MemoryLimit() {
    char name[] = "/tmp/tutti-XXXXXX";
    dir_ = ::mkdtemp(name);
  }
  ~MemoryLimit() override { fs::remove_all(dir_); }
  void write(const fs::path& file, const std::string& text) const {
    fs::create_directories((dir_ / file).parent_path());
    std::ofstream(dir_ / file) << text;
  }
  std::optional<uint64_t> left() const { return memory_left(dir_ / "proc", dir_ / "groups"); }

 private:
  fs::path dir_;
};

TEST_F(MemoryLimit, the_tightest_of_a_job_its_steps_and_tasks) {
  write("proc/self/cgroup", "0::/job/step\n");
  write("groups/cgroup.controllers", "cpu memory\n");
  write("groups/job/memory.max", "1000\n");
  write("groups/job/memory.current", "700\n");
  write("groups/job/memory.stat", "anon 500\nfile 200\ninactive_file 100\nactive_file 50\n");
  write("groups/job/step/memory.max", "max\n");
  write("groups/job/step/memory.current", "600\n");
  EXPECT_EQ(left(), 450u);
  write("groups/job/step/memory.max", "650\n");
  EXPECT_EQ(left(), 50u);
  write("groups/job/step/memory.current", "700\n");  // lowered after it was used
  EXPECT_EQ(left(), 0u);
  write("groups/job/step/memory.max", "max\n");
  write("groups/job/step/memory.high", "710\n");  // beyond it all becomes slow
  EXPECT_EQ(left(), 10u);
}

TEST_F(MemoryLimit, version_1_and_a_container_that_sees_its_group_at_the_top) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/elsewhere\n4:memory:/docker/1234\n0::/\n");
  write("groups/memory/memory.limit_in_bytes", "5000\n");
  write("groups/memory/memory.usage_in_bytes", "2000\n");
  write("groups/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 300\ntotal_active_file 200\n");
  EXPECT_EQ(left(), 3500u);
}

TEST_F(MemoryLimit, none) {
  EXPECT_EQ(left(), std::nullopt);
  write("proc/self/cgroup", "nonsense\n1:name=systemd:/\n0::/\n");
  EXPECT_EQ(left(), std::nullopt);
  write("groups/cgroup.controllers", "memory\n");
  write("groups/memory.max", "max\n");
  EXPECT_EQ(left(), std::nullopt);
}

}  // namespace

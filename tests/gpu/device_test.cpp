// Memory, copies and streams of GPUs: Gpu.* on real ones, too (check.sh).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "device/cuda/abi.h"
#include "device/devices.h"
#include "device/streams.h"
#include "gpu/standin/control.h"
#include "tutti/error.h"
#include "tutti/tensor.h"
#include "tutti/worker.h"

namespace {

using namespace tutti;
using namespace tutti::detail;
namespace standin = tutti_test::standin_control;

Tensor numbers(int64_t count, int64_t first = 0) {
  Tensor t = Tensor::empty({count}, kInt64);
  const auto values = t.values<int64_t>();
  std::iota(values.begin(), values.end(), first);
  return t;
}
Tensor on_gpu(const Tensor& host, int id = 0) {
  Tensor t = Tensor::empty(host.shape(), host.dtype(), cuda(id));
  t.copy_from(host);
  return t;
}
Tensor fetched(const Tensor& t) {
  Tensor host = Tensor::empty(t.shape(), t.dtype());
  host.copy_from(t);
  return host;
}
bool same(const Tensor& a, const Tensor& b) {
  return a.size_bytes() == b.size_bytes() && std::memcmp(a.data(), b.data(), static_cast<size_t>(a.size_bytes())) == 0;
}

/// What a fresh process with these variables says to its first tensor on a GPU. Not by fork alone: threads may hold locks.
std::string first_tensor(std::initializer_list<std::array<const char*, 2>> variables, int32_t type = dl::kCUDA) {
  std::string command = fmt::format("env TUTTI_TEST_DEVICE={}", type);
  for (const auto& [name, value] : variables) command += fmt::format(" {}='{}'", name, value);
  command += " " + std::filesystem::read_symlink("/proc/self/exe").string();
  FILE* out = popen((command + " --gtest_also_run_disabled_tests --gtest_filter=Driver.DISABLED_first_tensor").c_str(), "r");
  std::string said;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, out)) > 0;) said.append(buffer, n);
  EXPECT_EQ(pclose(out), 0) << said;
  const size_t begin = said.find("says: "), end = said.find('\n', begin);
  return begin == std::string::npos ? said : said.substr(begin + 6, end - begin - 6);
}

TEST(Driver, DISABLED_first_tensor) {  // what the test below runs
  std::string said = "fine";
  try {
    (void)Tensor::empty({4}, kFloat32, {std::stoi(getenv("TUTTI_TEST_DEVICE")), 0});
  } catch (const std::exception& error) {
    said = error.what();
  }
  std::replace(said.begin(), said.end(), '\n', ' ');
  std::cout << "says: " << said << std::endl;
}

TEST(Driver, what_is_wrong_is_said_with_what_to_do) {
  struct Row {
    std::array<const char*, 2> variable;
    std::vector<const char*> expected;
  };
  const Row rows[] = {
      {{"STANDIN_DEVICES", "1"}, {"fine"}},
      {{"TUTTI_CUDA_LIBRARY", "/nowhere/libcuda.so.1"}, {"/nowhere/libcuda.so.1", "can't be loaded", "nvidia-smi", "cpu(0)"}},
      {{"STANDIN_DEVICES", "0"}, {"CUDA_ERROR_NO_DEVICE", "cuInit", "--gpus all"}},
      {{"STANDIN_VERSION", "11080"}, {"is for CUDA 11.8, expected 12.0"}},
      {{"STANDIN_WITHOUT", "cuMemFreeAsync"}, {"has no cuMemFreeAsync: it is too old"}},
      {{"STANDIN_FAIL", "cuInit:1:999"}, {"error 999 to cuInit"}},
      {{"STANDIN_FAIL", "cuMemPoolCreate:1:2"}, {"cuda(0)", "cuMemPoolCreate failed with CUDA_ERROR_OUT_OF_MEMORY"}},
      {{"STANDIN_MEMORY", "8"}, {"cuda(0)", "no memory", "drop some, or ask for less"}},
  };
  for (const Row& row : rows) {
    const std::string said = first_tensor({row.variable});
    for (const char* text : row.expected) EXPECT_NE(said.find(text), std::string::npos) << row.variable[1] << ": " << said;
  }
  EXPECT_NE(first_tensor({{"TUTTI_HIP_LIBRARY", "/nowhere"}}, dl::kROCM).find("rocminfo"), std::string::npos);
  EXPECT_EQ(first_tensor({}, dl::kROCM), "fine");
  const std::string hidden = first_tensor({{"STANDIN_DEVICES", "0"}, {"CUDA_VISIBLE_DEVICES", "7"}});
  EXPECT_NE(hidden.find("(CUDA_VISIBLE_DEVICES=\"7\")"), std::string::npos) << hidden;
}

TEST(Gpu, copies_of_every_size_arrive) {
  for (const int64_t count : {0, 1, 7, 131071, 131072, 131073, 1200000}) {
    Tensor host = numbers(count, count);
    const Tensor there = on_gpu(host);
    std::memset(host.data(), 0, static_cast<size_t>(host.size_bytes()));  // it may change on return
    const Tensor again = Tensor::empty({count}, kInt64, cuda(0));
    again.copy_from(there);
    EXPECT_TRUE(same(fetched(again), numbers(count, count))) << count;
  }
}

TEST(Gpu, copies_that_follow_each_other_keep_apart) {
  std::vector<Tensor> all;
  for (int64_t i = 0; i < 40; ++i) all.push_back(on_gpu(numbers(1000, 1000 * i)));  // nobody waits
  for (int64_t i = 0; i < 40; ++i) EXPECT_TRUE(same(fetched(all[static_cast<size_t>(i)]), numbers(1000, 1000 * i))) << i;
}

TEST(Gpu, parts_of_tensors_are_copied) {
  const Tensor there = on_gpu(numbers(1000));
  there.slice(100, 200).copy_from(numbers(100, 5000));
  EXPECT_TRUE(same(fetched(there.slice(100, 200)), numbers(100, 5000)));
  EXPECT_TRUE(same(fetched(there.slice(200, 1000)), numbers(800, 200)));
  EXPECT_TRUE(same(fetched(there.slice(0, 100)), numbers(100)));
}

/// Work on streams of its own, as a worker's is.
class OnStreams : public testing::Test {
 protected:
  OnStreams() {
    for (int id = 0; id < std::min(2, count()); ++id) streams_.make(cuda(id));
    use_streams(&streams_);
  }
  ~OnStreams() override { use_streams(nullptr); }
  static int count() { return static_cast<int>(device_api(cuda()).pci_ids().size()); }
  Stream stream(int id = 0) { return streams_.current(cuda(id)); }
  Streams streams_;
};

TEST_F(OnStreams, peers_are_ordered) {
  if (count() < 2) GTEST_SKIP() << "this machine has one GPU";
  for (int round = 0; round < 50; ++round) {
    const Tensor there = Tensor::empty({1000}, kInt64, cuda(1));
    {
      const Tensor here = on_gpu(numbers(1000, round));
      there.copy_from(here);
      here.copy_from(numbers(1000));  // and is freed
    }
    const Tensor back = Tensor::empty({1000}, kInt64, cuda(0));
    back.copy_from(there);
    EXPECT_TRUE(same(fetched(back), numbers(1000, round))) << round;
  }
}

TEST_F(OnStreams, memory_is_freed_after_work_of_all_streams) {
  for (int round = 0; round < 50; ++round) {
    auto there = std::make_unique<Tensor>(on_gpu(numbers(1000, round)));
    const Tensor copy = Tensor::empty({1000}, kInt64, cuda(0));
    copy.copy_from(*there);
    std::thread([&] { there.reset(); }).join();  // a thread that has no stream
    EXPECT_TRUE(same(fetched(copy), numbers(1000, round)));
  }
}

TEST_F(OnStreams, memory_of_a_thread_without_streams_may_be_used_on_all) {
  for (int round = 0; round < 50; ++round) {
    Tensor there;
    std::thread([&] { there = Tensor::empty({1000}, kInt64, cuda(0)); }).join();
    there.copy_from(numbers(1000, round));
    EXPECT_TRUE(same(fetched(there), numbers(1000, round)));
  }
}

TEST_F(OnStreams, what_is_freed_is_there_again) {
  for (int round = 0; round < 10; ++round) (void)on_gpu(numbers(4 << 20));  // 32 of the 64 MiB that there are
  for (int i = 0; i < 5000 && standin::blocks() != 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(standin::blocks(), 0u);  // those of tests before, too
}

TEST_F(OnStreams, want_of_memory_is_an_error_of_that_tensor) {
  const Tensor large = Tensor::empty({50 << 20}, kUInt8, cuda(0));
  try {
    (void)Tensor::empty({20 << 20}, kUInt8, cuda(0));
    ADD_FAILURE() << "there is no room for it";
  } catch (const SystemError& error) {
    const std::string said = error.what();
    for (const char* text : {"cuda(0)", "20.0 MiB", "14.0 of 64.0 MiB are free", "hold 50.0"})
      EXPECT_NE(said.find(text), std::string::npos) << text << ": " << said;
  }
  EXPECT_TRUE(same(fetched(on_gpu(numbers(10))), numbers(10)));
}

TEST_F(OnStreams, the_thread_keeps_its_device) {
  using Get = gpu::Status(void**);
  auto* get = standin::find<Get>("TUTTI_CUDA_LIBRARY", "cuCtxGetCurrent");
  void *before = nullptr, *after = nullptr;
  device_api(cuda(1)).streams()->set_device(1);
  get(&before);
  (void)fetched(on_gpu(numbers(10), 0));
  get(&after);
  EXPECT_NE(before, nullptr);
  EXPECT_EQ(before, after);
}

TEST_F(OnStreams, there_are_no_more_gpus_than_there_are) {
  EXPECT_THROW((void)Tensor::empty({1}, kInt64, cuda(count())), UsageError);
  EXPECT_THROW((void)Tensor::empty({1}, kInt64, cuda(-1)), UsageError);
}

TEST_F(OnStreams, a_call_that_fails_is_an_error_and_no_more) {
  const Tensor there = on_gpu(numbers(100));
  for (const char* call : {"cuMemAllocFromPoolAsync", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync",
                           "cuEventRecord", "cuCtxGetCurrent"}) {
    standin::fail(call, 1, gpu::kInvalidHandle);
    try {
      const Tensor other = on_gpu(numbers(100));
      other.copy_from(there);
      (void)fetched(other);
      ADD_FAILURE() << call << " has not failed";
    } catch (const SystemError& error) {
      EXPECT_NE(std::string(error.what()).find(call), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("CUDA_ERROR_INVALID_HANDLE"), std::string::npos) << error.what();
    }
    standin::fail("", 0, 0);
    streams_.finish();
    EXPECT_TRUE(same(fetched(there), numbers(100))) << call;
  }
}

TEST_F(OnStreams, a_wait_is_for_the_work_on_the_stream) {
  std::atomic<bool> is_done = false;
  standin::launch(stream(), [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    is_done = true;
    return 0;
  });
  streams_.finish();
  EXPECT_TRUE(is_done);
}

TEST_F(OnStreams, a_stream_of_another_library_is_ordered_after_all) {
  StreamApi& api = *device_api(cuda(0)).streams();
  const Stream other = api.make(0);
  const Tensor there = on_gpu(numbers(1000, -1));
  for (int64_t round = 0; round < 50; ++round) {
    there.copy_from(numbers(1000, round));
    std::thread([&] { order_after_all(cuda(0), other); }).join();  // which does not know the stream
    std::atomic<int64_t> seen = -1;
    standin::launch(other, [&] {
      seen = *reinterpret_cast<int64_t*>(standin::reach(other, there.data()));
      return 0;
    });
    order_streams(cuda(0), other, stream());
    streams_.finish();
    ASSERT_EQ(seen, round);
  }
  api.destroy(0, other);
}

TEST_F(OnStreams, foreign_memory_is_released_after_the_work_on_it) {
  const Tensor owner = on_gpu(numbers(100)), there = on_gpu(numbers(100, 7));
  streams_.finish();
  std::atomic<bool> may_go_on = false;
  std::atomic<int> released = 0;
  const auto foreign = [&] {
    return Tensor::wrap(
        owner.data(), {100}, kInt64, [&] { ++released; }, {}, cuda(0));
  };
  const auto expect = [&](int count) {
    for (int i = 0; i < 5000 && released < count; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      (void)Tensor::empty({1}, kInt64, cuda(0));  // looks after what is held
    }
    EXPECT_EQ(released, count);
  };
  (void)foreign();
  expect(1);
  standin::launch(stream(), [&] {
    while (!may_go_on) std::this_thread::sleep_for(std::chrono::microseconds(100));
    return 0;
  });
  auto elsewhere = std::make_unique<Tensor>(foreign());
  there.copy_from(*elsewhere);
  std::thread([&] { elsewhere.reset(); }).join();  // a thread that knows no stream
  there.copy_from(foreign());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  (void)Tensor::empty({1}, kInt64, cuda(0));
  EXPECT_EQ(released, 1);
  may_go_on = true;
  streams_.finish();
  expect(3);
  EXPECT_TRUE(same(fetched(there), numbers(100)));
}

// last: the device can't be used any more
TEST_F(OnStreams, work_that_fails_takes_what_was_written) {
  const Tensor written = on_gpu(numbers(10));
  streams_.finish();
  EXPECT_EQ(written.poisoned(), nullptr);
  written.copy_from(numbers(10));
  standin::launch(stream(), [] { return gpu::kLaunchFailed; });
  try {
    streams_.finish();
    ADD_FAILURE() << "it has not failed";
  } catch (const TransportError& error) {
    EXPECT_NE(std::string(error.what()).find("CUDA_ERROR_LAUNCH_FAILED"), std::string::npos) << error.what();
  }
  EXPECT_NE(written.poisoned(), nullptr);
}

}  // namespace

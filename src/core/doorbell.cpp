#include "core/doorbell.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>
#include <thread>

namespace tutti::detail {

void Doorbell::wake() {
  value.fetch_add(1, std::memory_order_release);
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&value), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Doorbell::sleep(uint32_t seen, std::chrono::nanoseconds at_most) {
  const auto ns = std::clamp<int64_t>(at_most.count(), 0, 3'600'000'000'000);
  timespec limit{};
  limit.tv_sec = ns / 1'000'000'000;
  limit.tv_nsec = ns % 1'000'000'000;
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&value), FUTEX_WAIT, seen, &limit, nullptr, 0);
}

int allowed_cores() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores)
                                                         : static_cast<int>(std::thread::hardware_concurrency());
}

WaitPolicy wait_policy(int ranks, int leaders, int cores) {
  const int allowed = allowed_cores();
  const bool bound_apart = allowed == 1 && ranks > 1 && ranks <= cores;
  WaitPolicy policy;
  if (bound_apart ? leaders > 0 : ranks + leaders > allowed) policy.spin = {};
  else if (!bound_apart && ranks + leaders == allowed)
    policy.spin = std::chrono::microseconds(1);  // the controller or its worker has no core
  return policy;
}

WaitPolicy collective_wait_policy(int ranks, int cores) {
  WaitPolicy policy;
  if (ranks > cores) policy.spin = {};
  policy.yield = std::chrono::milliseconds(2);  // a wake-up costs as much as much data
  return policy;
}

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void yield_cpu() { ::sched_yield(); }

}  // namespace tutti::detail

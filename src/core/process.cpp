#include "core/process.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <new>

namespace tutti::detail {
namespace {

/// In memory that the kernel clears in a child, whatever made it; where it does not, what fork() calls.
std::atomic<uint32_t>& generation() {
  static std::atomic<uint32_t>* const word = [] {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    void* memory = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    if (::madvise(memory, page, MADV_WIPEONFORK) != 0) ::pthread_atfork(nullptr, nullptr, [] { generation().store(0); });
    return new (memory) std::atomic<uint32_t>(0);
  }();
  return *word;
}

const auto* const loaded_in = [] {  // leaked: sessions may end after it would have
  std::error_code is_gone;
  return new std::filesystem::path(std::filesystem::current_path(is_gone));
}();

std::atomic<uint32_t> last{0};  // copied by fork: a child's is larger than all of its ancestors

}  // namespace

const std::atomic<uint32_t>& generation_word() { return generation(); }

uint32_t process_generation() {
  auto& here = generation();
  if (const uint32_t known = here.load(std::memory_order_relaxed)) [[likely]]
    return known;
  uint32_t fresh = 0;
  here.compare_exchange_strong(fresh, last.fetch_add(1) + 1);
  return here.load();
}

const std::filesystem::path& start_folder() { return *loaded_in; }

void reserve_standard_streams() noexcept {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})  // open() takes the lowest that is free
    if (::fcntl(stream, F_GETFD) < 0) [[maybe_unused]]
      const int taken = ::open("/dev/null", (stream == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
}

Fd open_pidfd(pid_t pid) { return Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }

}  // namespace tutti::detail

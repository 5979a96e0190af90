#include "core/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "tutti/error.h"

namespace tutti::detail {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

[[noreturn]] void fail(const std::string& what) { throw SystemError(fmt::format("{}: {}", what, std::strerror(errno))); }

Mapping map(int fd, size_t size_bytes, int flags) {
  void* address = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (address == MAP_FAILED) fail(fmt::format("mmap of {} bytes", size_bytes));
  return Mapping(Pages{address, size_bytes});
}

}  // namespace

SharedMemory SharedMemory::create(size_t size_bytes) {
  SharedMemory memory;
  memory.fd_.reset(::memfd_create("tutti", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.fd_) fail("memfd_create");
  if (::fchmod(memory.fd_.get(), S_IRUSR | S_IWUSR) != 0) fail("fchmod of shared memory");  // it is made with 0777
  if (::ftruncate(memory.fd_.get(), static_cast<off_t>(size_bytes)) != 0) fail("ftruncate of shared memory");
  if (::fcntl(memory.fd_.get(), F_ADD_SEALS, kSeals) != 0) fail("sealing shared memory");
  memory.mapping_ = map(memory.fd_.get(), size_bytes, MAP_SHARED);
  return memory;
}

SharedMemory SharedMemory::create_private(size_t size_bytes) {
  SharedMemory memory;
  memory.mapping_ = map(-1, size_bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
  return memory;
}

SharedMemory SharedMemory::open(pid_t pid, int fd) {
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, fd);
  SharedMemory memory;
  memory.fd_.reset(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!memory.fd_) fail(path);
  // only a sealed memfd: nobody can shrink it under us (SIGBUS)
  const int seals = ::fcntl(memory.fd_.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals)
    throw SystemError(fmt::format("{} is not tutti's shared memory (no sealed memfd)", path));
  struct stat info {};
  if (::fstat(memory.fd_.get(), &info) != 0) fail(path);
  memory.mapping_ = map(memory.fd_.get(), static_cast<size_t>(info.st_size), MAP_SHARED);
  return memory;
}

}  // namespace tutti::detail

#include "checkpoint/direct_io.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <utility>

namespace tutti::detail {
namespace {

constexpr int64_t kBuffer = int64_t{4} << 20, kShort = int64_t{64} << 10;
const int64_t block = std::max<int64_t>(4096, sysconf(_SC_PAGESIZE));  // no page of the cache is in part past it

int64_t block_of(int64_t at) { return at - at % block; }
int64_t next_block(int64_t at) { return block_of(at + block - 1); }

}  // namespace

bool write_all(int fd, const void* from, size_t bytes, int64_t at) {
  constexpr size_t kAtOnce = size_t{1} << 30;  // a call moves 2 GiB at most
  for (const auto* next = static_cast<const char*>(from); bytes > 0;) {
    const ssize_t put = pwrite(fd, next, std::min(bytes, kAtOnce), at);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    next += put, at += put, bytes -= static_cast<size_t>(put);
  }
  return true;
}

std::unique_ptr<DirectIo> DirectIo::open(int cached, int flags) {
  // not by its name, which may be another file's by now
  Fd direct(::open(("/proc/self/fd/" + std::to_string(cached)).c_str(), flags | O_DIRECT | O_CLOEXEC));
  return direct ? std::unique_ptr<DirectIo>(new DirectIo(std::move(direct), cached)) : nullptr;
}

DirectIo::DirectIo(Fd direct, int cached)
    : direct_(std::move(direct)),
      cached_(cached),
      buffer_(static_cast<std::byte*>(std::aligned_alloc(static_cast<size_t>(block), kBuffer))) {
  if (!buffer_) throw std::bad_alloc();
}

ssize_t DirectIo::read(void* to, size_t bytes, int64_t at) {
  if (at < begin_ || at >= end_) {
    begin_ = end_ = block_of(at);
    const auto wanted = std::min<int64_t>(static_cast<int64_t>(std::min<size_t>(bytes, kBuffer)) + (at - begin_), kBuffer);
    const ssize_t got = pread(direct_.get(), buffer_.get(), static_cast<size_t>(std::min(next_block(wanted), kBuffer)), begin_);
    if (got < 0 && errno != EINVAL) return got;
    end_ += std::max<ssize_t>(got, 0);
    if (at >= end_) return pread(cached_, to, bytes, at);  // refused, or cut short
  }
  const int64_t some = std::min<int64_t>(end_ - at, static_cast<int64_t>(std::min<size_t>(bytes, kBuffer)));
  std::memcpy(to, buffer_.get() + (at - block_of(begin_)), static_cast<size_t>(some));
  return some;
}

bool DirectIo::write(const void* from, size_t bytes, int64_t at) {
  const auto* next = static_cast<const std::byte*>(from);
  for (auto left = static_cast<int64_t>(bytes); left > 0;) {
    if (at != end_ && !flush()) return false;
    if (begin_ == end_) begin_ = end_ = at;
    const int64_t place = end_ - block_of(begin_), some = std::min(left, kBuffer - place);
    std::memcpy(buffer_.get() + place, next, static_cast<size_t>(some));
    next += some, at += some, end_ += some, left -= some;
    if (place + some == kBuffer && !flush()) return false;
  }
  return true;
}

bool DirectIo::flush() {
  const int64_t begin = std::exchange(begin_, 0), end = std::exchange(end_, 0);
  const int64_t first = std::min(next_block(begin), end), last = std::max(block_of(end), first);
  const auto put = [&](int fd, int64_t from, int64_t to) {
    return write_all(fd, buffer_.get() + (from - block_of(begin)), static_cast<size_t>(to - from), from);
  };
  if (last - first < kShort) return put(cached_, begin, end);
  if (!put(direct_.get(), first, last) && (errno != EINVAL || !put(cached_, first, last))) return false;
  return put(cached_, begin, first) && put(cached_, last, end);
}

}  // namespace tutti::detail

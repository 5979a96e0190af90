// Little-endian, length-prefixed encoding of everything that travels (commands, replies, arrivals).
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/error.h"
#include "tutti/value.h"

namespace tutti::detail {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

/// A malformed message: a length, tag or version that can't be.
class WireError : public Error {
 public:
  using Error::Error;
};
[[noreturn]] void throw_wire_error(const char* message);  // out of line, so that what may throw is small enough to be inlined

class Writer {
 public:
  template <class T>
  requires std::is_trivially_copyable_v<T>
  [[gnu::always_inline]] void put(T v) { std::memcpy(extend(sizeof v), &v, sizeof v); }
  void raw(const void* data, size_t size_bytes) {
    if (size_bytes > kMuch) return append(data, size_bytes);
    if (size_bytes > 0) std::memcpy(extend(size_bytes), data, size_bytes);
  }
  void text(std::string_view v) {
    put(static_cast<uint64_t>(v.size()));
    raw(v.data(), v.size());
  }
  template <class T>
  void list(const std::vector<T>& v) {
    put(static_cast<uint64_t>(v.size()));
    raw(v.data(), v.size() * sizeof(T));
  }
  std::vector<std::byte>& bytes() {
    bytes_.resize(size_);
    return bytes_;
  }
  std::span<std::byte> view() { return {bytes_.data(), size_}; }
  void clear() { size_ = 0; }  ///< keeps the memory

 private:
  [[gnu::always_inline]] std::byte* extend(size_t size_bytes) {
    const size_t at = size_;
    size_ += size_bytes;
    if (size_ > bytes_.size()) grow();
    return bytes_.data() + at;
  }
  [[gnu::noinline]] void grow() { bytes_.resize(std::max(2 * bytes_.size(), size_ + 64)); }
  /// Without zeroing the memory first.
  void append(const void* data, size_t size_bytes) {
    bytes_.resize(size_);
    const auto* begin = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), begin, begin + size_bytes);
    size_ = bytes_.size();
  }
  static constexpr size_t kMuch = size_t{64} << 10;
  std::vector<std::byte> bytes_;
  size_t size_ = 0;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <class T>
  requires std::is_trivially_copyable_v<T>
  [[gnu::always_inline]] T get() {
    T v;
    std::memcpy(&v, take(sizeof v).data(), sizeof v);
    return v;
  }
  [[gnu::always_inline]] std::span<const std::byte> take(uint64_t size_bytes) {
    if (size_bytes > rest_.size()) throw_wire_error("a message ends too early");
    auto part = rest_.first(size_bytes);
    rest_ = rest_.subspan(size_bytes);
    return part;
  }
  /// A count of things of at least `least_size` bytes each: refused when that many can't follow.
  [[gnu::always_inline]] uint64_t count(size_t least_size) {
    const auto n = get<uint64_t>();
    if (n > rest_.size() / least_size) throw_wire_error("a message claims more than it holds");
    return n;
  }
  std::string text() {
    auto part = take(count(1));
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }
  template <class T>
  std::vector<T> list() {
    std::vector<T> v;
    list(v);
    return v;
  }
  template <class T>
  void list(std::vector<T>& v) {     ///< into memory that is there
    if constexpr (sizeof(T) == 1) {  // bytes may be many: no zeroing before the copy
      const auto bytes = take(count(1));
      const auto* begin = reinterpret_cast<const T*>(bytes.data());
      v.assign(begin, begin + bytes.size());
      return;
    }
    v.resize(count(sizeof(T)));
    if (!v.empty()) std::memcpy(v.data(), take(v.size() * sizeof(T)).data(), v.size() * sizeof(T));
  }
  bool done() const { return rest_.empty(); }
  void expect_done() const {
    if (!done()) throw_wire_error("a message is longer than its content");
  }

 private:
  std::span<const std::byte> rest_;
};

/// Largest tensor that may be an argument.
inline constexpr int64_t kMaxTensorArgument = int64_t{64} * 1024;

/// Whether the value is an object with a content, or holds one.
bool has_content(const Value& value);
/// The value with the content of objects in their place, as far as they have one.
/// @throws UsageError  it is nested too deep, perhaps in itself; or what the content throws
Value travelling(const Value& value, int depth = 0);
/// Why the value has no wire form, or an empty string. `session`: whose registers are fine (0: none).
std::string why_not_encodable(const Value& value, uint64_t session, int64_t most_tensor_bytes);
/// Every kind but functions and opaque objects.  @throws UsageError  it has no wire form
void encode(Writer& out, const Value& value);
/// @throws WireError
Value decode_value(Reader& in);
void decode_value(Reader& in, List& values);  ///< appends it

}  // namespace tutti::detail

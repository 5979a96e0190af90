#pragma once

#include <zlib.h>
#ifdef TUTTI_ISAL
#include <isa-l/crc.h>
#endif

#include <cstddef>
#include <cstdint>

namespace tutti::detail {

inline uint32_t crc32_of(const void* data, size_t bytes) {
#ifdef TUTTI_ISAL  // the same values, by instructions that zlib does not use
  return crc32_gzip_refl(0, static_cast<const unsigned char*>(data), bytes);
#else
  return static_cast<uint32_t>(crc32_z(0, static_cast<const Bytef*>(data), bytes));
#endif
}

/// CRC-32 (zlib's) of a whole of which only some bytes are here, as if the others were missing terms of a sum: the whole's CRC is
/// the XOR of those of its parts. Add pieces in the order of their places.
class PartialCrc {
 public:
  void add(const void* data, size_t bytes, int64_t at) {
    move_to(at + static_cast<int64_t>(bytes));
    crc_ ^= crc32_of(data, bytes);
  }
  /// The part's term, in a whole of this length.
  uint32_t of(int64_t whole_bytes) {
    move_to(whole_bytes);
    return crc_;
  }

 private:
  void move_to(int64_t end) {
    if (end - end_ != distance_) {
      distance_ = end - end_;
      shift_ = crc32_combine_gen(distance_);
    }
    if (distance_ != 0) crc_ = static_cast<uint32_t>(crc32_combine_op(crc_, 0, shift_));
    end_ = end;
  }
  uint32_t crc_ = 0;
  int64_t end_ = 0, distance_ = 0;
  uLong shift_ = 0;
};

}  // namespace tutti::detail

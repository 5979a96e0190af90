#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tutti/dlpack.h"
#include "tutti/export.h"

namespace tutti {

/// An element type, as DLPack states it: kind, bits per lane, lanes.
struct DType {
  uint8_t code = dl::kFloat;
  uint8_t bits = 32;
  uint16_t lanes = 1;

  bool operator==(const DType&) const = default;
  /// Bytes of one element (bits are rounded up to whole bytes).
  int64_t size_bytes() const { return (int64_t{bits} * lanes + 7) / 8; }
  bool is_float8() const { return code >= dl::kFloat8_e3m4 && code <= dl::kFloat8_e8m0fnu; }
};

/// "float32", "int64", "bool", "bfloat16", "complex64", "float8_e4m3fn", ... (numpy's and ml_dtypes' names), and of several
/// lanes, "float16x4".
/// @throws UsageError  the name is none of these
TUTTI_API DType parse_dtype(std::string_view name);
TUTTI_API std::string to_string(DType dtype);

inline constexpr DType kInt8{dl::kInt, 8, 1}, kInt16{dl::kInt, 16, 1}, kInt32{dl::kInt, 32, 1}, kInt64{dl::kInt, 64, 1};
inline constexpr DType kUInt8{dl::kUInt, 8, 1}, kUInt16{dl::kUInt, 16, 1}, kUInt32{dl::kUInt, 32, 1}, kUInt64{dl::kUInt, 64, 1};
inline constexpr DType kFloat16{dl::kFloat, 16, 1}, kFloat32{dl::kFloat, 32, 1}, kFloat64{dl::kFloat, 64, 1};
inline constexpr DType kBFloat16{dl::kBfloat, 16, 1}, kBool{dl::kBool, 8, 1};
inline constexpr DType kComplex64{dl::kComplex, 64, 1}, kComplex128{dl::kComplex, 128, 1};

/// The DType of a C++ element type: dtype_of<float>() == kFloat32.
template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<int8_t>() {
  return kInt8;
}
template <>
constexpr DType dtype_of<int16_t>() {
  return kInt16;
}
template <>
constexpr DType dtype_of<int32_t>() {
  return kInt32;
}
template <>
constexpr DType dtype_of<int64_t>() {
  return kInt64;
}
template <>
constexpr DType dtype_of<uint8_t>() {
  return kUInt8;
}
template <>
constexpr DType dtype_of<uint16_t>() {
  return kUInt16;
}
template <>
constexpr DType dtype_of<uint32_t>() {
  return kUInt32;
}
template <>
constexpr DType dtype_of<uint64_t>() {
  return kUInt64;
}
template <>
constexpr DType dtype_of<float>() {
  return kFloat32;
}
template <>
constexpr DType dtype_of<double>() {
  return kFloat64;
}
template <>
constexpr DType dtype_of<bool>() {
  return kBool;
}

}  // namespace tutti

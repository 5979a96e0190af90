#include "tutti/dtype.h"

#include <fmt/format.h>

#include <charconv>
#include <system_error>

#include "tutti/device.h"
#include "tutti/error.h"

namespace tutti {
namespace {

struct Row {
  std::string_view name;
  DType dtype;
};

constexpr Row kNames[] = {
    {"int8", kInt8},
    {"int16", kInt16},
    {"int32", kInt32},
    {"int64", kInt64},
    {"uint8", kUInt8},
    {"uint16", kUInt16},
    {"uint32", kUInt32},
    {"uint64", kUInt64},
    {"float16", kFloat16},
    {"float32", kFloat32},
    {"float64", kFloat64},
    {"bfloat16", kBFloat16},
    {"bool", kBool},
    {"complex64", kComplex64},
    {"complex128", kComplex128},
    {"float8_e3m4", {dl::kFloat8_e3m4, 8, 1}},
    {"float8_e4m3", {dl::kFloat8_e4m3, 8, 1}},
    {"float8_e4m3b11fnuz", {dl::kFloat8_e4m3b11fnuz, 8, 1}},
    {"float8_e4m3fn", {dl::kFloat8_e4m3fn, 8, 1}},
    {"float8_e4m3fnuz", {dl::kFloat8_e4m3fnuz, 8, 1}},
    {"float8_e5m2", {dl::kFloat8_e5m2, 8, 1}},
    {"float8_e5m2fnuz", {dl::kFloat8_e5m2fnuz, 8, 1}},
    {"float8_e8m0fnu", {dl::kFloat8_e8m0fnu, 8, 1}},
};

}  // namespace

DType parse_dtype(std::string_view name) {
  for (const Row& row : kNames)
    if (row.name == name) return row.dtype;
  if (const size_t x = name.rfind('x'); x != std::string_view::npos) {  // of several lanes
    uint16_t lanes = 0;
    const auto [end, error] = std::from_chars(name.data() + x + 1, name.data() + name.size(), lanes);
    for (const Row& row : kNames)
      if (row.name == name.substr(0, x) && error == std::errc() && end == name.data() + name.size() && lanes > 1)
        return {row.dtype.code, row.dtype.bits, lanes};
  }
  throw UsageError(fmt::format("unknown dtype '{}'; expected a numpy or ml_dtypes name such as float32 or bfloat16", name));
}

std::string to_string(DType dtype) {
  DType scalar = dtype;
  scalar.lanes = 1;
  for (const Row& row : kNames)
    if (row.dtype == scalar) return dtype.lanes == 1 ? std::string(row.name) : fmt::format("{}x{}", row.name, dtype.lanes);
  return fmt::format("dtype(code {}, {} bits, {} lanes)", dtype.code, dtype.bits, dtype.lanes);
}

std::string to_string(Device device) {
  std::string_view type;
  switch (device.type) {
    case dl::kCPU: type = "cpu"; break;
    case dl::kCUDA: type = "cuda"; break;
    case dl::kCUDAHost: type = "cuda_host"; break;
    case dl::kROCM: type = "rocm"; break;
    case dl::kROCMHost: type = "rocm_host"; break;
    case dl::kCUDAManaged: type = "cuda_managed"; break;
    default: return fmt::format("device({}, {})", device.type, device.id);
  }
  return fmt::format("{}({})", type, device.id);
}

}  // namespace tutti

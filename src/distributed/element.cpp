#include "distributed/element.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "collective/float16.h"
#include "tutti/error.h"

namespace tutti::distributed {
namespace {

template <class T>
Bytes bytes_of(T element) {
  Bytes bytes(sizeof element);
  std::memcpy(bytes.data(), &element, sizeof element);
  return bytes;
}

bool has_whole_words(DType dtype) { return dtype.bits == 8 || dtype.bits == 16 || dtype.bits == 32 || dtype.bits == 64; }

[[noreturn]] void refuse(const Value& number, DType dtype) {
  throw UsageError(fmt::format("an element of {} can't be {}", to_string(dtype), to_string(number)));
}

Bytes integer(const Value& number, DType dtype) {
  int64_t value = 0;
  constexpr double kTooLarge = 0x1p63;
  if (const auto* given = std::get_if<int64_t>(&number.data())) value = *given;
  else if (const auto* whole = std::get_if<double>(&number.data());
           whole && std::trunc(*whole) == *whole && *whole >= -kTooLarge && *whole < kTooLarge)
    value = static_cast<int64_t>(*whole);
  else if (const auto* truth = std::get_if<bool>(&number.data())) value = *truth ? 1 : 0;
  else refuse(number, dtype);
  const bool is_signed = dtype.code == dl::kInt;
  const int bits = dtype.bits;
  if (bits < 64) {
    const int64_t least = is_signed ? -(int64_t{1} << (bits - 1)) : 0, most = (int64_t{1} << (is_signed ? bits - 1 : bits)) - 1;
    if (value < least || value > most) refuse(number, dtype);
  } else if (!is_signed && value < 0) {
    refuse(number, dtype);
  }
  Bytes bytes = bytes_of(value);  // little-endian
  bytes.resize(static_cast<size_t>(dtype.size_bytes()));
  return bytes;
}

double real(const Value& number, DType dtype) {
  if (const auto* value = std::get_if<double>(&number.data())) return *value;
  if (const auto* value = std::get_if<int64_t>(&number.data())) return static_cast<double>(*value);
  if (const auto* value = std::get_if<bool>(&number.data())) return *value ? 1 : 0;
  refuse(number, dtype);
}

/// A finite one does not become infinite.
float narrowed(const Value& number, DType dtype) {
  const double value = real(number, dtype);
  if (std::isfinite(value) && std::abs(value) > std::numeric_limits<float>::max()) refuse(number, dtype);
  return static_cast<float>(value);
}

/// A double is rounded twice on its way to 16 bits. Rounded to odd first, that is as if it were rounded once.
float to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (!std::isfinite(value) || static_cast<double>(nearest) == value) return nearest;
  const float towards_zero = std::abs(static_cast<double>(nearest)) > std::abs(value) ? std::nextafter(nearest, 0.0F) : nearest;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(towards_zero) | 1);
}

/// The (index + 1)-th output of SplitMix64 (Steele, Lea, Flood 2014): each depends on seed and index alone.
uint64_t random_bits(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

template <class Make>
void fill_by(std::byte* to, uint64_t seed, uint64_t begin, int64_t count, Make make) {
  for (int64_t i = 0; i < count; ++i) {
    const auto element = make(random_bits(seed, begin + static_cast<uint64_t>(i)));
    std::memcpy(to, &element, sizeof element);
    to += sizeof element;
  }
}

float random_float(uint64_t bits) { return static_cast<float>(bits >> 40) * 0x1p-24F; }
double random_double(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

}  // namespace

Bytes to_element(const Value& number, DType dtype) {
  if (dtype.lanes != 1) refuse(number, dtype);
  if (dtype == kBool) {
    const double value = real(number, dtype);
    if (value != 0 && value != 1) refuse(number, dtype);
    return bytes_of(value == 1);
  }
  if (dtype.code == dl::kInt || dtype.code == dl::kUInt) {
    if (has_whole_words(dtype)) return integer(number, dtype);
    if (real(number, dtype) != 0) refuse(number, dtype);
    return Bytes(static_cast<size_t>(dtype.size_bytes()));
  }
  const double value = real(number, dtype);
  if (dtype == kFloat16 || dtype == kBFloat16) {
    narrowed(number, dtype);
    const float odd = to_odd(value);
    const uint16_t bits = dtype == kFloat16 ? detail::narrow_half(odd).bits : detail::narrow_bfloat(odd).bits;
    const float back = dtype == kFloat16 ? detail::widen(detail::Half{bits}) : detail::widen(detail::BFloat{bits});
    if (std::isinf(back) && std::isfinite(value)) refuse(number, dtype);
    return bytes_of(bits);
  }
  if (dtype == kFloat32) return bytes_of(narrowed(number, dtype));
  if (dtype == kFloat64) return bytes_of(value);
  if (dtype == kComplex64) return bytes_of(std::array<float, 2>{narrowed(number, dtype), 0});
  if (dtype == kComplex128) return bytes_of(std::array<double, 2>{value, 0});
  if (value != 0 || dtype.code == dl::kFloat8_e8m0fnu) refuse(number, dtype);  // float8: that one has no 0
  return Bytes(static_cast<size_t>(dtype.size_bytes()));
}

Bytes neutral_element(std::string_view op, DType dtype) {
  if (op == "prod") return to_element(1, dtype);
  if (dtype == kComplex64) return bytes_of(std::array<float, 2>{-0.0F, -0.0F});
  if (dtype == kComplex128) return bytes_of(std::array<double, 2>{-0.0, -0.0});
  return dtype.code == dl::kInt || dtype.code == dl::kUInt || dtype == kBool ? to_element(0, dtype) : to_element(-0.0, dtype);
}

void fill_with(std::byte* to, int64_t count, const Bytes& element) {
  const size_t item = element.size(), total = static_cast<size_t>(count) * item;
  if (total == 0) return;
  std::memcpy(to, element.data(), item);
  for (size_t done = item; done < total; done *= 2) std::memcpy(to + done, to, std::min(done, total - done));
}

void check_random(DType dtype) {
  const bool is_whole = (dtype.code == dl::kInt || dtype.code == dl::kUInt) && has_whole_words(dtype);
  const bool is_float = dtype == kFloat16 || dtype == kBFloat16 || dtype == kFloat32 || dtype == kFloat64;
  if (dtype.lanes != 1 || !(is_whole || is_float || dtype == kBool || dtype == kComplex64 || dtype == kComplex128))
    throw UsageError(fmt::format("random: there are no random values of {}", to_string(dtype)));
}

void fill_random(std::byte* to, DType dtype, uint64_t seed, int64_t begin_element, int64_t count) {
  const auto begin = static_cast<uint64_t>(begin_element);
  if (dtype == kFloat64) return fill_by(to, seed, begin, count, random_double);
  if (dtype == kFloat32) return fill_by(to, seed, begin, count, random_float);
  if (dtype == kComplex64) return fill_by(to, seed, 2 * begin, 2 * count, random_float);
  if (dtype == kComplex128) return fill_by(to, seed, 2 * begin, 2 * count, random_double);
  if (dtype == kFloat16)
    return fill_by(to, seed, begin, count,
                   [](uint64_t bits) { return detail::narrow_half(static_cast<float>(bits >> 53) * 0x1p-11F); });
  if (dtype == kBFloat16)
    return fill_by(to, seed, begin, count,
                   [](uint64_t bits) { return detail::narrow_bfloat(static_cast<float>(bits >> 56) * 0x1p-8F); });
  if (dtype == kBool) return fill_by(to, seed, begin, count, [](uint64_t bits) { return static_cast<uint8_t>(bits >> 63); });
  switch (dtype.size_bytes()) {
    case 1: return fill_by(to, seed, begin, count, [](uint64_t bits) { return static_cast<uint8_t>(bits >> 56); });
    case 2: return fill_by(to, seed, begin, count, [](uint64_t bits) { return static_cast<uint16_t>(bits >> 48); });
    case 4: return fill_by(to, seed, begin, count, [](uint64_t bits) { return static_cast<uint32_t>(bits >> 32); });
    default: return fill_by(to, seed, begin, count, [](uint64_t bits) { return bits; });
  }
}

}  // namespace tutti::distributed

// float16 and bfloat16 <-> float32, rounding to nearest, ties to even.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace tutti::detail {

struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};

inline float widen(BFloat v) { return std::bit_cast<float>(static_cast<uint32_t>(v.bits) << 16); }

inline BFloat narrow_bfloat(float v) {
  const auto bits = std::bit_cast<uint32_t>(v);
  if ((bits & 0x7fffffff) > 0x7f800000) return {static_cast<uint16_t>((bits >> 16) | 0x40)};  // NaN stays NaN
  return {static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}

inline float widen(Half v) {
  // exponent and mantissa moved into place and scaled by 2^112: subnormals come out right as well
  const uint32_t sign = static_cast<uint32_t>(v.bits & 0x8000) << 16;
  const uint32_t rest = static_cast<uint32_t>(v.bits & 0x7fff) << 13;
  if ((v.bits & 0x7c00) == 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | (rest & 0x7fffff));
  return std::bit_cast<float>(std::bit_cast<uint32_t>(std::bit_cast<float>(rest) * 0x1p112f) | sign);
}

inline Half narrow_half(float v) {
  const auto bits = std::bit_cast<uint32_t>(v);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return {static_cast<uint16_t>(sign | 0x7e00)};   // NaN
  if (magnitude >= 0x477ff000) return {static_cast<uint16_t>(sign | 0x7c00)};  // rounds to infinity
  if (magnitude < 0x38800000) {                                                // subnormal: the adder rounds for us
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000))};
  }
  const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return {static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13))};
}

}  // namespace tutti::detail

// float16 and bfloat16 on x86-64 processors with AVX2 and F16C, which nearly all have. The file is compiled for any: every
// function that has vectors needs the attribute.
#include "collective/min_max.h"
#include "collective/reduce_blocks.h"
#include "core/settings.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tutti::detail {

#if defined(__x86_64__)

namespace {

struct HalfLanes {
  TUTTI_AVX2 TUTTI_INLINE static void widen(const __m256i* from, __m256& low, __m256& high) {
    const auto* halves = reinterpret_cast<const __m128i*>(from);
    low = _mm256_cvtph_ps(_mm_loadu_si128(halves));
    high = _mm256_cvtph_ps(_mm_loadu_si128(halves + 1));
  }
  TUTTI_AVX2 TUTTI_INLINE static __m256i narrow(__m256 low, __m256 high) {
    return _mm256_set_m128i(_mm256_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT), _mm256_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT));
  }
};

/// A bfloat16 is the upper half of a float32: those at odd places are one already, but for what stands below.
struct BFloatLanes {
  TUTTI_AVX2 TUTTI_INLINE static void widen(const __m256i* from, __m256& even, __m256& odd) {
    const __m256i both = _mm256_loadu_si256(from);
    even = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
    odd = _mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32(static_cast<int>(0xffff0000))));
  }
  /// To nearest even, in the upper half. A NaN stays one: its lower half is zero, as those of the operands are.
  TUTTI_AVX2 TUTTI_INLINE static __m256i round(__m256 wide) {
    const __m256i bits = _mm256_castps_si256(wide);
    const __m256i is_odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), is_odd);
  }
  TUTTI_AVX2 TUTTI_INLINE static __m256i narrow(__m256 even, __m256 odd) {
    return _mm256_blend_epi16(_mm256_srli_epi32(round(even), 16), round(odd), 0xaa);
  }
};

template <ReduceOp op>
TUTTI_AVX2 TUTTI_INLINE void combine(__m256& acc, __m256 in) {
  if constexpr (op == ReduceOp::kProd) acc = _mm256_mul_ps(acc, in);
  else if constexpr (op == ReduceOp::kMin) keep_lanes<Extreme::kMin>(acc, in);
  else if constexpr (op == ReduceOp::kMax) keep_lanes<Extreme::kMax>(acc, in);
  else acc = _mm256_add_ps(acc, in);
}

/// 64 bytes, computed with in float32.
template <class Lanes>
struct HalfGroup {
  __m256 a, b, c, d;

  TUTTI_AVX2 TUTTI_INLINE explicit HalfGroup(const char* from) {
    Lanes::widen(reinterpret_cast<const __m256i*>(from), a, b);
    Lanes::widen(reinterpret_cast<const __m256i*>(from) + 1, c, d);
  }
  template <ReduceOp op>
  TUTTI_AVX2 TUTTI_INLINE void add(const HalfGroup& in) {
    combine<op>(a, in.a), combine<op>(b, in.b), combine<op>(c, in.c), combine<op>(d, in.d);
  }
  TUTTI_AVX2 TUTTI_INLINE void divide(float n) {
    const __m256 by = _mm256_set1_ps(n);
    a = _mm256_div_ps(a, by), b = _mm256_div_ps(b, by), c = _mm256_div_ps(c, by), d = _mm256_div_ps(d, by);
  }
};

template <class Lanes, ReduceOp op, class Sources, class Dsts>
TUTTI_AVX2 void loop(const Sources sources, const Dsts dsts, int64_t end) {
  for (int64_t begin = 0; begin < end; begin += kBlockBytes) {
    const int64_t next = std::min(begin + kBlockBytes, end);
    fetch_for_writing(dsts, next, std::min(next + kBlockBytes, end));
    for (int64_t at = begin; at < next; at += kGroupBytes) {
      HalfGroup<Lanes> acc(sources[0] + at);
      for (size_t s = 1; s < sources.size(); ++s) acc.template add<op>(HalfGroup<Lanes>(sources[s] + at));
      if constexpr (op == ReduceOp::kAvg) acc.divide(static_cast<float>(sources.size()));
      const __m256i low = Lanes::narrow(acc.a, acc.b), high = Lanes::narrow(acc.c, acc.d);
      for (char* dst : dsts) {
        auto* to = reinterpret_cast<__m256i*>(dst + at);
        _mm256_storeu_si256(to, low);
        _mm256_storeu_si256(to + 1, high);
      }
    }
  }
}

template <class Lanes, ReduceOp op>
void halves(Sources sources, Dsts dsts, int64_t end) {
  if (is_pair(sources, dsts)) return loop<Lanes, op>(pair(sources), pair(dsts), end);
  loop<Lanes, op>(sources, dsts, end);
}

template <class Lanes>
void halves(ReduceOp op, Sources sources, Dsts dsts, int64_t end) {
  switch (op) {
    case ReduceOp::kSum: return halves<Lanes, ReduceOp::kSum>(sources, dsts, end);
    case ReduceOp::kProd: return halves<Lanes, ReduceOp::kProd>(sources, dsts, end);
    case ReduceOp::kMin: return halves<Lanes, ReduceOp::kMin>(sources, dsts, end);
    case ReduceOp::kMax: return halves<Lanes, ReduceOp::kMax>(sources, dsts, end);
    case ReduceOp::kAvg: return halves<Lanes, ReduceOp::kAvg>(sources, dsts, end);
  }
}

}  // namespace

bool has_avx2() {
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) && settings().simd != "portable";
  }();
  return has;
}

bool reduce_halves(ReduceOp op, DType dtype, Sources sources, Dsts dsts, int64_t end) {
  if (!has_avx2()) return false;
  if (dtype == kFloat16) return halves<HalfLanes>(op, sources, dsts, end), true;
  if (dtype == kBFloat16) return halves<BFloatLanes>(op, sources, dsts, end), true;
  return false;
}

#else

bool has_avx2() { return false; }
bool reduce_halves(ReduceOp, DType, Sources, Dsts, int64_t) { return false; }

#endif

}  // namespace tutti::detail

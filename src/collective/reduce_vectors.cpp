// Blocks of 2 KiB: while one is computed the next one's lines are fetched for writing, which other cores hold. In a block 64 bytes at a
// time: all sources are read before anything is written. float16 and bfloat16 need AVX2 and F16C, which nearly every x86-64 processor
// has; TUTTI_SIMD=portable does without.
#include "collective/reduce_vectors.h"

#include <algorithm>
#include <cstring>

#include "core/env.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace tutti {
namespace {

constexpr int64_t kBlockBytes = 2048, kGroupBytes = 64;

void fetch_for_writing(std::span<char* const> dsts, int64_t begin, int64_t end) {
#if defined(__x86_64__)
  for (char* dst : dsts)
    for (int64_t at = begin; at < end; at += 64) asm volatile("prefetchw %0" : : "m"(dst[at]));
#else
  for (char* dst : dsts)
    for (int64_t at = begin; at < end; at += 64) __builtin_prefetch(dst + at, 1);
#endif
}

bool can_stream(std::span<char* const> dsts) {
#if defined(__x86_64__)
  return std::all_of(dsts.begin(), dsts.end(), [](char* dst) { return reinterpret_cast<uintptr_t>(dst) % 32 == 0; });
#else
  (void)dsts;
  return false;
#endif
}

/// Calls group(at) for each 64 bytes, and returns how many bytes that were.
template <class Group>
[[gnu::always_inline]] inline int64_t for_groups(std::span<char* const> dsts, int64_t bytes, Stores stores, Group group) {
  const int64_t end = bytes / kGroupBytes * kGroupBytes;
  for (int64_t begin = 0; begin < end; begin += kBlockBytes) {
    const int64_t next = std::min(begin + kBlockBytes, end);
    if (stores == Stores::kCached) fetch_for_writing(dsts, next, std::min(next + kBlockBytes, end));
    for (int64_t at = begin; at < next; at += kGroupBytes) group(at);
  }
#if defined(__x86_64__)
  if (stores == Stores::kStreamed) _mm_sfence();
#endif
  return end;
}

struct Sum {
  template <class V>
  static void apply(V& acc, const V& in) { acc += in; }
};
struct Prod {
  template <class V>
  static void apply(V& acc, const V& in) { acc *= in; }
};
struct Min {
  template <class V>
  static void apply(V& acc, const V& in) { acc = in < acc ? in : acc; }
};
struct Max {
  template <class V>
  static void apply(V& acc, const V& in) { acc = acc < in ? in : acc; }
};

/// 64 bytes, as four vectors of every x86-64 and ARM64 processor.
template <class T>
struct Group {
  typedef T V __attribute__((vector_size(16)));
  V a, b, c, d;

  void load(const char* from) {
    std::memcpy(&a, from, 16);
    std::memcpy(&b, from + 16, 16);
    std::memcpy(&c, from + 32, 16);
    std::memcpy(&d, from + 48, 16);
  }
  template <class Op>
  void combine(const Group& in) {
    Op::apply(a, in.a);
    Op::apply(b, in.b);
    Op::apply(c, in.c);
    Op::apply(d, in.d);
  }
  void divide(T divisor) { a /= divisor, b /= divisor, c /= divisor, d /= divisor; }
  void store(char* to) const {
    std::memcpy(to, &a, 16);
    std::memcpy(to + 16, &b, 16);
    std::memcpy(to + 32, &c, 16);
    std::memcpy(to + 48, &d, 16);
  }
  void stream(char* to) const {
#if defined(__x86_64__)
    const auto put = [to](int at, const V& v) {
      __m128i bits;
      std::memcpy(&bits, &v, sizeof bits);
      _mm_stream_si128(reinterpret_cast<__m128i*>(to) + at, bits);
    };
    put(0, a), put(1, b), put(2, c), put(3, d);
#else
    store(to);
#endif
  }
};

template <class T, class Op>
int64_t native(std::span<const char* const> sources, std::span<char* const> dsts, int64_t bytes, Stores stores, bool average) {
  const T divisor = static_cast<T>(sources.size());
  return for_groups(dsts, bytes, stores, [&](int64_t at) {
    Group<T> acc, in;
    acc.load(sources[0] + at);
    for (size_t s = 1; s < sources.size(); ++s) {
      in.load(sources[s] + at);
      acc.template combine<Op>(in);
    }
    if (average) acc.divide(divisor);
    for (char* dst : dsts) {
      if (stores == Stores::kStreamed) acc.stream(dst + at);
      else acc.store(dst + at);
    }
  });
}

/// `Same`: a type in which sums and products are the same bits and wrap.
template <class T, class Same = T>
int64_t native(ReduceOp op, std::span<const char* const> sources, std::span<char* const> dsts, int64_t bytes, Stores stores) {
  switch (op) {
    case ReduceOp::kSum: return native<Same, Sum>(sources, dsts, bytes, stores, false);
    case ReduceOp::kProd: return native<Same, Prod>(sources, dsts, bytes, stores, false);
    case ReduceOp::kMin: return native<T, Min>(sources, dsts, bytes, stores, false);
    case ReduceOp::kMax: return native<T, Max>(sources, dsts, bytes, stores, false);
    case ReduceOp::kAvg:
      if constexpr (std::is_floating_point_v<T>) return native<T, Sum>(sources, dsts, bytes, stores, true);
      return 0;
  }
  return 0;
}

#if defined(__x86_64__)
#define TUTTI_AVX2 [[gnu::target("avx2,f16c")]]

struct HalfLanes {
  TUTTI_AVX2 static __m256 widen(__m128i halves) { return _mm256_cvtph_ps(halves); }
  TUTTI_AVX2 static __m256i narrow(__m256 low, __m256 high) {
    return _mm256_set_m128i(_mm256_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT), _mm256_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT));
  }
};

struct BFloatLanes {
  TUTTI_AVX2 static __m256 widen(__m128i halves) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
  TUTTI_AVX2 static __m256i round(__m256 wide) {
    const __m256i bits = _mm256_castps_si256(wide), high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));  // NaN stays NaN
    const __m256 is_nan = _mm256_cmp_ps(wide, wide, _CMP_UNORD_Q);
    return _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), is_nan));
  }
  TUTTI_AVX2 static __m256i narrow(__m256 low, __m256 high) {
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(round(low), round(high)), 0xd8);
  }
};

template <ReduceOp op>
TUTTI_AVX2 __m256 combine(__m256 acc, __m256 in) {
  if constexpr (op == ReduceOp::kProd) return _mm256_mul_ps(acc, in);
  if constexpr (op == ReduceOp::kMin) return _mm256_min_ps(in, acc);
  if constexpr (op == ReduceOp::kMax) return _mm256_max_ps(in, acc);
  return _mm256_add_ps(acc, in);
}

template <class Lanes, ReduceOp op>
TUTTI_AVX2 int64_t halves(std::span<const char* const> sources, std::span<char* const> dsts, int64_t bytes, Stores stores) {
  const __m256 divisor = _mm256_set1_ps(static_cast<float>(sources.size()));
  const int64_t end = bytes / kGroupBytes * kGroupBytes;
  for (int64_t begin = 0; begin < end; begin += kBlockBytes) {
    const int64_t next = std::min(begin + kBlockBytes, end);
    if (stores == Stores::kCached) fetch_for_writing(dsts, next, std::min(next + kBlockBytes, end));
    for (int64_t at = begin; at < next; at += kGroupBytes) {
      __m256 a{}, b{}, c{}, d{};  // no array: it would lie in memory
      for (size_t s = 0; s < sources.size(); ++s) {
        const auto* from = reinterpret_cast<const __m128i*>(sources[s] + at);
        const __m256 in_a = Lanes::widen(_mm_loadu_si128(from)), in_b = Lanes::widen(_mm_loadu_si128(from + 1));
        const __m256 in_c = Lanes::widen(_mm_loadu_si128(from + 2)), in_d = Lanes::widen(_mm_loadu_si128(from + 3));
        a = s == 0 ? in_a : combine<op>(a, in_a);
        b = s == 0 ? in_b : combine<op>(b, in_b);
        c = s == 0 ? in_c : combine<op>(c, in_c);
        d = s == 0 ? in_d : combine<op>(d, in_d);
      }
      if constexpr (op == ReduceOp::kAvg) {
        a = _mm256_div_ps(a, divisor), b = _mm256_div_ps(b, divisor);
        c = _mm256_div_ps(c, divisor), d = _mm256_div_ps(d, divisor);
      }
      const __m256i low = Lanes::narrow(a, b), high = Lanes::narrow(c, d);
      for (char* dst : dsts) {
        auto* to = reinterpret_cast<__m256i*>(dst + at);
        if (stores == Stores::kStreamed) {
          _mm256_stream_si256(to, low);
          _mm256_stream_si256(to + 1, high);
        } else {
          _mm256_storeu_si256(to, low);
          _mm256_storeu_si256(to + 1, high);
        }
      }
    }
  }
  if (stores == Stores::kStreamed) _mm_sfence();
  return end;
}

template <class Lanes>
int64_t halves(ReduceOp op, std::span<const char* const> sources, std::span<char* const> dsts, int64_t bytes, Stores stores) {
  switch (op) {
    case ReduceOp::kSum: return halves<Lanes, ReduceOp::kSum>(sources, dsts, bytes, stores);
    case ReduceOp::kProd: return halves<Lanes, ReduceOp::kProd>(sources, dsts, bytes, stores);
    case ReduceOp::kMin: return halves<Lanes, ReduceOp::kMin>(sources, dsts, bytes, stores);
    case ReduceOp::kMax: return halves<Lanes, ReduceOp::kMax>(sources, dsts, bytes, stores);
    case ReduceOp::kAvg: return halves<Lanes, ReduceOp::kAvg>(sources, dsts, bytes, stores);
  }
  return 0;
}

bool has_avx2() {
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) && env_string("TUTTI_SIMD") != "portable";
  }();
  return has;
}
#endif

}  // namespace

int64_t reduce_vectors(ReduceOp op, DType dtype, std::span<const char* const> sources, std::span<char* const> dsts, int64_t count,
                       Stores stores) {
  if (stores == Stores::kStreamed && !can_stream(dsts)) stores = Stores::kCached;
  const int64_t bytes = count * dtype.size_bytes();
  const bool adds = op == ReduceOp::kSum || op == ReduceOp::kAvg;
  const int64_t done = [&]() -> int64_t {
    if (dtype.lanes != 1) return 0;
    if (dtype == kFloat32 || (dtype == kComplex64 && adds)) return native<float>(op, sources, dsts, bytes, stores);
    if (dtype == kFloat64 || (dtype == kComplex128 && adds)) return native<double>(op, sources, dsts, bytes, stores);
    if (dtype == kInt8) return native<int8_t, uint8_t>(op, sources, dsts, bytes, stores);
    if (dtype == kUInt8 || dtype == kBool) return native<uint8_t>(op, sources, dsts, bytes, stores);
    if (dtype == kInt16) return native<int16_t, uint16_t>(op, sources, dsts, bytes, stores);
    if (dtype == kUInt16) return native<uint16_t>(op, sources, dsts, bytes, stores);
    if (dtype == kInt32) return native<int32_t, uint32_t>(op, sources, dsts, bytes, stores);
    if (dtype == kUInt32) return native<uint32_t>(op, sources, dsts, bytes, stores);
    if (dtype == kInt64) return native<int64_t, uint64_t>(op, sources, dsts, bytes, stores);
    if (dtype == kUInt64) return native<uint64_t>(op, sources, dsts, bytes, stores);
#if defined(__x86_64__)
    if (dtype == kFloat16 && has_avx2()) return halves<HalfLanes>(op, sources, dsts, bytes, stores);
    if (dtype == kBFloat16 && has_avx2()) return halves<BFloatLanes>(op, sources, dsts, bytes, stores);
#endif
    return 0;
  }();
  return done / dtype.size_bytes();
}

}  // namespace tutti

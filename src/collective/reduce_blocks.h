// What the loops over vectors share. Blocks of 2 KiB: while one is computed the next one's lines are fetched for writing, which
// other cores hold. In a block 64 bytes at a time: all sources are read before anything is written.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "tutti/dtype.h"
#include "tutti/worker.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define TUTTI_AVX2 [[gnu::target("avx2,f16c")]]
#else
#define TUTTI_AVX2
#endif
#define TUTTI_INLINE [[gnu::always_inline]] inline

namespace tutti::detail {

constexpr int64_t kBlockBytes = 2048, kGroupBytes = 64;

using Sources = std::span<const char* const>;
using Dsts = std::span<char* const>;

/// Of this processor, also F16C; false with TUTTI_SIMD=portable.
bool has_avx2();

template <class Pointers>
TUTTI_INLINE void fetch_for_writing(const Pointers& dsts, int64_t begin, int64_t end) {
#if defined(__x86_64__)
  for (char* dst : dsts)
    for (int64_t at = begin; at < end; at += 64) asm volatile("prefetchw %0" : : "m"(dst[at]));
#else
  for (char* dst : dsts)
    for (int64_t at = begin; at < end; at += 64) __builtin_prefetch(dst + at, 1);
#endif
}

/// Two members are the most frequent case: the pointers of an array stay in registers, a span's are read again after each store.
inline bool is_pair(Sources sources, Dsts dsts) { return sources.size() == 2 && dsts.size() == 2; }
template <class T>
std::array<T, 2> pair(std::span<T const> of) {
  return {of[0], of[1]};
}

/// float16 and bfloat16, the first `end` bytes: false where there are no vectors for them.
bool reduce_halves(ReduceOp op, DType dtype, Sources sources, Dsts dsts, int64_t end);

}  // namespace tutti::detail

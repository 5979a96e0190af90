// Native types: the same loop for every processor with vectors of 16 bytes and, on x86-64, for AVX2.
#include "collective/reduce_vectors.h"

#include <array>
#include <type_traits>

#include "collective/min_max.h"
#include "collective/reduce_blocks.h"

namespace tutti::detail {
namespace {

struct Sum {
  template <class V>
  TUTTI_INLINE static void apply(V& acc, const V& in) {
    acc += in;
  }
};
struct Prod {
  template <class V>
  TUTTI_INLINE static void apply(V& acc, const V& in) {
    acc *= in;
  }
};
template <Extreme extreme>
struct Keep {
  template <class V>
  TUTTI_INLINE static void apply(V& acc, const V& in) {
    keep_lanes<extreme>(acc, in);
  }
};

/// 64 bytes, in vectors of so many bytes as the processor has.
template <class T, int width>
struct Group {
  static constexpr int kVectors = kGroupBytes / width;
  typedef T V __attribute__((vector_size(width)));
  typedef V Anywhere __attribute__((aligned(1), may_alias));
  V v[kVectors];

  TUTTI_INLINE explicit Group(const char* from) {
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) v[i] = reinterpret_cast<const Anywhere*>(from)[i];
  }
  template <class Op>
  TUTTI_INLINE void combine(const Group& in) {
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) Op::apply(v[i], in.v[i]);
  }
  TUTTI_INLINE void divide(size_t n) {
    const T divisor = static_cast<T>(n);
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) v[i] /= divisor;
  }
  TUTTI_INLINE void store(char* to) const {
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) reinterpret_cast<Anywhere*>(to)[i] = v[i];
  }
};

template <class Group, class Op, bool average, class Sources, class Dsts>
TUTTI_INLINE void loop(const Sources& sources, const Dsts& dsts, int64_t end) {
  for (int64_t begin = 0; begin < end; begin += kBlockBytes) {
    const int64_t next = std::min(begin + kBlockBytes, end);
    fetch_for_writing(dsts, next, std::min(next + kBlockBytes, end));
    for (int64_t at = begin; at < next; at += kGroupBytes) {
      Group acc(sources[0] + at);
      for (size_t s = 1; s < sources.size(); ++s) acc.template combine<Op>(Group(sources[s] + at));
      if constexpr (average) acc.divide(sources.size());
      for (char* dst : dsts) acc.store(dst + at);
    }
  }
}
template <class T, class Op, bool average, class Sources, class Dsts>
void any(const Sources sources, const Dsts dsts, int64_t end) {
  loop<Group<T, 16>, Op, average>(sources, dsts, end);
}
template <class T, class Op, bool average, class Sources, class Dsts>
TUTTI_AVX2 void avx2(const Sources sources, const Dsts dsts, int64_t end) {
  loop<Group<T, 32>, Op, average>(sources, dsts, end);
}

template <class T, class Op, bool average = false>
void native(Sources sources, Dsts dsts, int64_t end) {
  const auto run = [end](auto from, auto to) {
    has_avx2() ? avx2<T, Op, average>(from, to, end) : any<T, Op, average>(from, to, end);
  };
  if (is_pair(sources, dsts)) run(pair(sources), pair(dsts));
  else run(sources, dsts);
}

/// `Same`: a type in which sums and products are the same bits and wrap.
template <class T, class Same = T>
bool native(ReduceOp op, Sources sources, Dsts dsts, int64_t end) {
  switch (op) {
    case ReduceOp::kSum: return native<Same, Sum>(sources, dsts, end), true;
    case ReduceOp::kProd: return native<Same, Prod>(sources, dsts, end), true;
    case ReduceOp::kMin: return native<T, Keep<Extreme::kMin>>(sources, dsts, end), true;
    case ReduceOp::kMax: return native<T, Keep<Extreme::kMax>>(sources, dsts, end), true;
    case ReduceOp::kAvg:
      if constexpr (std::is_floating_point_v<T>) return native<T, Sum, true>(sources, dsts, end), true;
      return false;
  }
  return false;
}

}  // namespace

int64_t reduce_vectors(ReduceOp op, DType dtype, Sources sources, Dsts dsts, int64_t count) {
  const int64_t end = count * dtype.size_bytes() / kGroupBytes * kGroupBytes;
  if (end == 0) return 0;
  const bool adds = op == ReduceOp::kSum || op == ReduceOp::kAvg;
  const bool is_done = [&] {
    if (dtype.lanes != 1) return false;
    if (dtype == kFloat32 || (dtype == kComplex64 && adds)) return native<float>(op, sources, dsts, end);
    if (dtype == kFloat64 || (dtype == kComplex128 && adds)) return native<double>(op, sources, dsts, end);
    if (dtype == kInt8) return native<int8_t, uint8_t>(op, sources, dsts, end);
    if (dtype == kUInt8 || dtype == kBool) return native<uint8_t>(op, sources, dsts, end);
    if (dtype == kInt16) return native<int16_t, uint16_t>(op, sources, dsts, end);
    if (dtype == kUInt16) return native<uint16_t>(op, sources, dsts, end);
    if (dtype == kInt32) return native<int32_t, uint32_t>(op, sources, dsts, end);
    if (dtype == kUInt32) return native<uint32_t>(op, sources, dsts, end);
    if (dtype == kInt64) return native<int64_t, uint64_t>(op, sources, dsts, end);
    if (dtype == kUInt64) return native<uint64_t>(op, sources, dsts, end);
    return reduce_halves(op, dtype, sources, dsts, end);
  }();
  return is_done ? end / dtype.size_bytes() : 0;
}

}  // namespace tutti::detail

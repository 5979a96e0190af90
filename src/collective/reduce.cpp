#include "collective/reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <complex>
#include <concepts>
#include <cstring>
#include <type_traits>

#include "collective/float16.h"
#include "collective/min_max.h"
#include "collective/reduce_vectors.h"
#include "tutti/error.h"

namespace tutti::detail {
namespace {

constexpr int64_t kBlock = 512;

template <class T>
struct Wide {
  using Type = T;
};
template <>
struct Wide<Half> {
  using Type = float;
};
template <>
struct Wide<BFloat> {
  using Type = float;
};

template <class T>
auto load(T v) {
  if constexpr (std::same_as<T, Half> || std::same_as<T, BFloat>) return widen(v);
  else return v;
}
template <class T, class W>
T store(W v) {
  if constexpr (std::same_as<T, Half>) return narrow_half(v);
  else if constexpr (std::same_as<T, BFloat>) return narrow_bfloat(v);
  else return v;
}

template <class W>
struct IsComplex : std::false_type {};
template <class F>
struct IsComplex<std::complex<F>> : std::true_type {};

/// Integers wrap: the arithmetic is done unsigned, in at least 32 bits.
template <class W, class F>
W wrapping(W a, W b, F f) {
  if constexpr (std::integral<W> && !std::same_as<W, bool>) {
    using U = std::conditional_t<sizeof(W) == 8, uint64_t, uint32_t>;
    return static_cast<W>(f(static_cast<U>(a), static_cast<U>(b)));
  } else {
    return static_cast<W>(f(a, b));
  }
}

template <class W>
void combine(ReduceOp op, W* acc, const W* in, int64_t n) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      for (int64_t i = 0; i < n; ++i) acc[i] = wrapping(acc[i], in[i], [](auto a, auto b) { return a + b; });
      return;
    case ReduceOp::kProd:
      for (int64_t i = 0; i < n; ++i) acc[i] = wrapping(acc[i], in[i], [](auto a, auto b) { return a * b; });
      return;
    case ReduceOp::kMin:
      if constexpr (!IsComplex<W>::value)
        for (int64_t i = 0; i < n; ++i) keep<Extreme::kMin>(acc[i], in[i]);
      return;
    case ReduceOp::kMax:
      if constexpr (!IsComplex<W>::value)
        for (int64_t i = 0; i < n; ++i) keep<Extreme::kMax>(acc[i], in[i]);
      return;
  }
}

template <class W>
void divide_by(W* data, int64_t count, int n) {
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (IsComplex<W>::value) data[i] /= static_cast<typename W::value_type>(n);
    else if constexpr (std::same_as<W, bool>) (void)n;
    else if constexpr (std::integral<W>) data[i] = static_cast<W>(static_cast<int64_t>(data[i]) / n);
    else data[i] /= static_cast<W>(n);
  }
}
template <>
void divide_by(uint64_t* data, int64_t count, int n) {
  for (int64_t i = 0; i < count; ++i) data[i] /= static_cast<uint64_t>(n);
}

/// So few that blocks would cost more than they do.
template <class T>
void reduce_few(ReduceOp op, std::span<const char* const> sources, std::span<char* const> dsts, int64_t first, int64_t end) {
  using W = typename Wide<T>::Type;
  for (int64_t at = first * static_cast<int64_t>(sizeof(T)); first < end; ++first, at += static_cast<int64_t>(sizeof(T))) {
    W acc{};
    for (size_t s = 0; s < sources.size(); ++s) {
      T raw;
      std::memcpy(&raw, sources[s] + at, sizeof(T));
      const W in = load(raw);
      if (s == 0) acc = in;
      else combine(op, &acc, &in, 1);
    }
    if (op == ReduceOp::kAvg) divide_by(&acc, 1, static_cast<int>(sources.size()));
    const T out = store<T>(acc);
    for (char* dst : dsts) std::memcpy(dst + at, &out, sizeof(T));
  }
}

/// One element after the other: what has no vectors, and what they leave over.
template <class T>
void reduce_scalars(ReduceOp op, std::span<const char* const> sources, std::span<char* const> dsts, int64_t first, int64_t end) {
  using W = typename Wide<T>::Type;
  constexpr int64_t kFew = 4;
  if (end - first <= kFew) return reduce_few<T>(op, sources, dsts, first, end);
  W acc[kBlock], in[kBlock];
  for (int64_t begin = first; begin < end; begin += kBlock) {
    const int64_t n = std::min(kBlock, end - begin), at = begin * static_cast<int64_t>(sizeof(T));
    const auto bytes = static_cast<size_t>(n) * sizeof(T);
    for (size_t s = 0; s < sources.size(); ++s) {
      T raw[kBlock];  // memcpy: sources may have any alignment
      std::memcpy(raw, sources[s] + at, bytes);
      W* to = s == 0 ? acc : in;
      for (int64_t i = 0; i < n; ++i) to[i] = load(raw[i]);
      if (s > 0) combine(op, acc, in, n);
    }
    if (op == ReduceOp::kAvg) divide_by(acc, n, static_cast<int>(sources.size()));
    T out[kBlock];
    for (int64_t i = 0; i < n; ++i) out[i] = store<T>(acc[i]);
    for (char* dst : dsts) std::memcpy(dst + at, out, bytes);
  }
}

/// Calls f with a value of the C++ type behind dtype; false for types that have no arithmetic.
template <class F>
bool with_type(DType dtype, F f) {
  if (dtype.lanes != 1) return false;
  if (dtype == kInt8) return f(int8_t{}), true;
  if (dtype == kInt16) return f(int16_t{}), true;
  if (dtype == kInt32) return f(int32_t{}), true;
  if (dtype == kInt64) return f(int64_t{}), true;
  if (dtype == kUInt8) return f(uint8_t{}), true;
  if (dtype == kUInt16) return f(uint16_t{}), true;
  if (dtype == kUInt32) return f(uint32_t{}), true;
  if (dtype == kUInt64) return f(uint64_t{}), true;
  if (dtype == kBool) return f(uint8_t{}), true;  // min and max of 0 and 1
  if (dtype == kFloat16) return f(Half{}), true;
  if (dtype == kBFloat16) return f(BFloat{}), true;
  if (dtype == kFloat32) return f(float{}), true;
  if (dtype == kFloat64) return f(double{}), true;
  if (dtype == kComplex64) return f(std::complex<float>{}), true;
  if (dtype == kComplex128) return f(std::complex<double>{}), true;
  return false;
}

}  // namespace

bool can_reduce(DType dtype, ReduceOp op) {
  const bool is_order = op == ReduceOp::kMin || op == ReduceOp::kMax;
  if (dtype == kBool) return is_order;
  if (dtype.code == dl::kComplex && is_order) return false;
  return with_type(dtype, [](auto) {});
}

void reduce(ReduceOp op, DType dtype, std::span<const char* const> sources, std::span<char* const> dsts, int64_t count) {
  const int64_t done = reduce_vectors(op, dtype, sources, dsts, count);
  const bool known =
      done == count || with_type(dtype, [&](auto zero) { reduce_scalars<decltype(zero)>(op, sources, dsts, done, count); });
  if (!known) throw UsageError(fmt::format("{} can't be reduced", to_string(dtype)));
}

namespace {

template <class T>
T element(const void* data, int64_t i) {  // of any alignment
  T v;
  std::memcpy(&v, static_cast<const char*>(data) + i * static_cast<int64_t>(sizeof v), sizeof v);
  return v;
}
template <class T>
void set_element(void* data, int64_t i, T v) {
  std::memcpy(static_cast<char*>(data) + i * static_cast<int64_t>(sizeof v), &v, sizeof v);
}

}  // namespace

void divide(DType dtype, void* data, int64_t count, int n) {
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < count; ++i) {
      auto wide = load(element<T>(data, i));
      divide_by(&wide, 1, n);
      set_element(data, i, store<T>(wide));
    }
  });
}

void widen_all(DType dtype, const void* halves, float* wide, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    wide[i] = dtype == kFloat16 ? widen(element<Half>(halves, i)) : widen(element<BFloat>(halves, i));
}
void narrow_all(DType dtype, const float* wide, void* halves, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    if (dtype == kFloat16) set_element(halves, i, narrow_half(wide[i]));
    else set_element(halves, i, narrow_bfloat(wide[i]));
}

}  // namespace tutti::detail

namespace tutti {
namespace {

constexpr std::string_view kNames[] = {"sum", "prod", "min", "max", "avg"};

}  // namespace

ReduceOp parse_reduce_op(std::string_view name) {
  if (const auto known = std::ranges::find(kNames, name); known != std::end(kNames))
    return static_cast<ReduceOp>(known - std::begin(kNames));
  throw UsageError(fmt::format("unknown reduce op '{}'; expected sum, prod, min, max or avg", name));
}

std::string to_string(ReduceOp op) { return std::string(kNames[static_cast<int>(op)]); }

}  // namespace tutti

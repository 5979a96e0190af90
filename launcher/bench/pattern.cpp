#include "bench/pattern.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>

#include "collective/float16.h"

namespace tutti::bench {
using namespace detail;
namespace {

constexpr int64_t kPeriod = 31, kLongPeriod = 251;

void put(char* at, DType d, double v) {
  const auto store = [&](auto x) { std::memcpy(at, &x, sizeof x); };
  const auto whole = static_cast<int64_t>(v);
  if (d == kFloat16) store(narrow_half(static_cast<float>(v)));
  else if (d == kBFloat16) store(narrow_bfloat(static_cast<float>(v)));
  else if (d == kFloat32) store(static_cast<float>(v));
  else if (d == kFloat64) store(v);
  else if (d == kComplex64) store(std::complex<float>(static_cast<float>(v)));
  else if (d == kComplex128) store(std::complex<double>(v));
  else if (d == kBool) store(static_cast<uint8_t>(v > 1));
  else if (d.size_bytes() == 8) store(whole);
  else if (d.size_bytes() == 4) store(static_cast<int32_t>(whole));
  else if (d.size_bytes() == 2) store(static_cast<int16_t>(whole));
  else store(static_cast<int8_t>(whole));
}

/// 1 to 3, without a rule that a sum over ranks could cancel; 1 from the ninth rank on, so that products stay exact.
double element(int rank, int64_t i) {
  if (rank > 7) return 1;
  uint64_t x = static_cast<uint64_t>(rank) * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(i % kPeriod) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 29) * 0x94d049bb133111eb;
  return static_cast<double>(1 + (x >> 33) % 3);
}

}  // namespace

template <class F>
Pattern::Pattern(DType dtype, int64_t period, F value)
    : dtype_(dtype), period_(period), tile_(std::max<int64_t>(1, 4096 / period) * period) {
  const int64_t item = dtype.size_bytes();
  bytes_.resize(static_cast<size_t>((tile_ + period) * item));
  for (int64_t i = 0; i < tile_ + period; ++i) put(bytes_.data() + i * item, dtype, value(i));
}

Pattern Pattern::of_rank(DType dtype, int rank, bool for_reduction) {
  if (for_reduction) return {dtype, kPeriod, [&](int64_t i) { return element(rank, i); }};
  return {dtype, kLongPeriod, [&](int64_t i) { return static_cast<double>(1 + (7 * rank + i) % kLongPeriod); }};
}

Pattern Pattern::reduced(DType dtype, int size, ReduceOp op) {
  return {dtype, kPeriod, [&](int64_t i) {
            double acc = element(0, i);
            for (int r = 1; r < size; ++r) {
              const double in = element(r, i);
              switch (op) {
                case ReduceOp::kSum:
                case ReduceOp::kAvg: acc += in; break;
                case ReduceOp::kProd: acc *= in; break;
                case ReduceOp::kMin: acc = std::min(acc, in); break;
                case ReduceOp::kMax: acc = std::max(acc, in); break;
              }
            }
            if (op != ReduceOp::kAvg) return acc;
            if (dtype.code == dl::kInt || dtype.code == dl::kUInt) return std::trunc(acc / size);
            return dtype == kFloat64 || dtype == kComplex128
                       ? acc / size
                       : static_cast<double>(static_cast<float>(acc) / static_cast<float>(size));
          }};
}

void Pattern::write(void* to, int64_t count, int64_t phase) const {
  const int64_t item = dtype_.size_bytes();
  const char* from = bytes_.data() + phase % period_ * item;
  for (int64_t i = 0; i < count; i += tile_)
    std::memcpy(static_cast<char*>(to) + i * item, from, static_cast<size_t>(std::min(tile_, count - i) * item));
}

int64_t Pattern::count_wrong(const void* data, int64_t count, int64_t phase) const {
  const int64_t item = dtype_.size_bytes();
  const char *want = bytes_.data() + phase % period_ * item, *have = static_cast<const char*>(data);
  int64_t wrong = 0;
  for (int64_t i = 0; i < count; i += tile_) {
    const int64_t n = std::min(tile_, count - i);
    if (std::memcmp(have + i * item, want, static_cast<size_t>(n * item)) == 0) continue;
    for (int64_t j = 0; j < n; ++j) wrong += std::memcmp(have + (i + j) * item, want + j * item, static_cast<size_t>(item)) != 0;
  }
  return wrong;
}

}  // namespace tutti::bench

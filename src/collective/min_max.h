// What min and max give for NaN and for zeros: minimum and maximum of IEEE 754-2019. A NaN on either side gives the quiet NaN
// without a sign (numpy's nan). -0 is below +0. The order of the operands does not matter: all ranks, nodes and algorithms of MPI
// give the same bits.
#pragma once

#include <cmath>
#include <limits>
#include <type_traits>

namespace tutti::detail {

enum class Extreme { kMin, kMax };

/// acc = the smaller, or greater, of acc and in. T: a number.
template <Extreme extreme, class T>
void keep(T& acc, T in) {
  const bool better = extreme == Extreme::kMin ? in < acc : acc < in;
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isunordered(acc, in)) acc = std::numeric_limits<T>::quiet_NaN();
    else if (better || (in == acc && std::signbit(in) == (extreme == Extreme::kMin))) acc = in;
  } else if (better) {
    acc = in;
  }
}

/// The same in every lane. V: a vector of GCC's kind.
template <Extreme extreme, class V>
[[gnu::always_inline]] inline void keep_lanes(V& acc, const V& in) {
  using T = std::remove_cvref_t<decltype(acc[0])>;
  const V one = extreme == Extreme::kMin ? (in < acc ? in : acc) : (acc < in ? in : acc);
  if constexpr (std::is_floating_point_v<T>) {
    // A comparison with NaN is false, and so is -0 < +0: there `one` is acc and `other` is in. Elsewhere they are the same.
    const V other = extreme == Extreme::kMin ? (acc < in ? acc : in) : (in < acc ? acc : in);
    using Bits = decltype(acc < in);
    const auto a = reinterpret_cast<Bits>(one), b = reinterpret_cast<Bits>(other);
    const V any = reinterpret_cast<V>(a | b);  // NaN if either operand is
    const V merged = extreme == Extreme::kMin ? any : reinterpret_cast<V>(a & b);
    acc = any == any ? merged : V{} + std::numeric_limits<T>::quiet_NaN();
  } else {
    acc = one;
  }
}

}  // namespace tutti::detail

// Compares our declarations of foreign functions with the real ones: both must be called in the same way.
#pragma once

#include <type_traits>

namespace tutti_test {

/// Numbers and addresses of one size go in the same registers (CUdeviceptr is a number, HIP's an address); structs by size.
template <class Ours, class Theirs>
constexpr bool same_value() {
  constexpr bool both = std::is_scalar_v<Ours> == std::is_scalar_v<Theirs>;
  constexpr bool floats = std::is_floating_point_v<Ours> == std::is_floating_point_v<Theirs>;
  return both && floats && sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs);
}

template <class Ours, class Theirs>
struct SameAbi : std::false_type {};
template <class R, class... P, class S, class... Q>
struct SameAbi<R (*)(P...), S (*)(Q...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(P) != sizeof...(Q)) return false;
    else return same_value<R, S>() && (same_value<P, Q>() && ...);
  }();
};

}  // namespace tutti_test

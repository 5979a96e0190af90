#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tutti/dtype.h"
#include "tutti/value.h"

namespace tutti::distributed {

/// One element of this dtype.  @throws UsageError  it can't hold the number
Bytes to_element(const Value& number, DType dtype);

/// What changes no reduction by `op`, "sum" or "prod": 0, and -0 in floats, which changes +0 as little as -0; 1.
Bytes neutral_element(std::string_view op, DType dtype);

void fill_with(std::byte* to, int64_t count, const Bytes& element);

/// Elements [begin, begin + count) of a tensor of random values (distributed::random).
void fill_random(std::byte* to, DType dtype, uint64_t seed, int64_t begin, int64_t count);

/// @throws UsageError  there are no random values of this dtype
void check_random(DType dtype);

}  // namespace tutti::distributed

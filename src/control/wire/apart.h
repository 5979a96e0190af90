// Large tensors travel apart from the value that holds them: not through the rings, but straight from the memory of one process
// to that of the other, in one copy.
#pragma once

#include <vector>

#include "collective/node/operand.h"
#include "core/wire.h"

namespace tutti::detail {

inline constexpr int64_t kApart = int64_t{32} << 10;  ///< bytes of the smallest tensor that does

/// A tensor of a worker's that the controller is to read or to write.
struct Offer {
  DType dtype{};
  Shape shape;
  Operand place;  ///< out of reach: MPI carries it, or the staging memory

  size_t size_bytes() const { return static_cast<size_t>(element_count(shape) * dtype.size_bytes()); }
};
void encode(Writer& out, const std::vector<Offer>& offers);
std::vector<Offer> decode_offers(Reader& in);  ///< @throws WireError
/// @param is_near  the controller shares memory with the worker
Offer offer_of(const Tensor& tensor, bool is_near);

/// A copy of the value. In the place of each large tensor is a register with its number: a value that travels holds no register
/// else. The tensors go to `large`: row-major, a strided one as a copy.
/// @throws UsageError  there is a DRef, or a tensor on a device
Value set_apart(const Value& value, std::vector<Tensor>& large);
Value put_together(const Value& value, const std::vector<Tensor>& large);  ///< @throws WireError  a number that is none

}  // namespace tutti::detail

// Tensors wherever they lie in a value: itself, or in lists.
#pragma once

#include <functional>
#include <optional>

#include "agreement/origin.h"
#include "tutti/value.h"

namespace tutti::detail {

void each_tensor(const Value& value, const std::function<void(const Tensor& tensor)>& use);
std::optional<Origin> find_poison(const Value& value);
void poison_all(const Value& value, Origin origin);
/// With row-major copies of its tensors, in host memory.  @throws UsageError  a strided one lies on a device, or there is a DRef
Value copy_tensors(const Value& value);
bool lies_on_device(const Value& value);  ///< a tensor in it
/// With such copies of those tensors that lie on devices.
Value on_host(const Value& value);

}  // namespace tutti::detail

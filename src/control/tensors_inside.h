// Tensors wherever they lie in a value: itself, or in lists.
#pragma once

#include <optional>

#include "agreement/origin.h"
#include "tutti/value.h"

namespace tutti {

std::optional<Origin> find_poison(const Value& value);
void poison_all(const Value& value, Origin origin);
/// With row-major copies of its tensors.  @throws UsageError  one lies on a device, or there is a DRef
Value copy_tensors(const Value& value);

}  // namespace tutti

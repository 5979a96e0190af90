#include "control/wire/tensors_inside.h"

#include "core/items.h"
#include "tutti/error.h"

namespace tutti::detail {

std::optional<Origin> find_poison(const Value& value) {
  if (const auto* tensor = std::get_if<Tensor>(&value.data()))
    if (const auto* poison = tensor->poisoned()) return Origin{poison->worker, poison->seq};
  std::optional<Origin> found;
  each_item(value, [&](const Value& item) {
    if (!found) found = find_poison(item);
  });
  return found;
}

void each_tensor(const Value& value, const std::function<void(const Tensor& tensor)>& use) {
  if (const auto* tensor = std::get_if<Tensor>(&value.data()); tensor && *tensor) use(*tensor);
  each_item(value, [&](const Value& item) { each_tensor(item, use); });
}

void poison_all(const Value& value, Origin origin) {
  each_tensor(value, [&](const Tensor& tensor) { tensor.poison({origin.worker, origin.seq}); });
}

namespace {

Tensor host_copy(const Tensor& tensor) {
  Tensor copy = Tensor::empty(tensor.shape(), tensor.dtype());
  copy.copy_from(tensor.contiguous());
  return copy;
}

}  // namespace

Value copy_tensors(const Value& value) {
  if (value.kind() == Value::Kind::kRegister) throw UsageError("a DRef can't travel inside a value");
  if (const auto* tensor = std::get_if<Tensor>(&value.data()); tensor && *tensor) {
    return host_copy(*tensor);
  }
  return with_items(value, copy_tensors).value_or(value);
}

bool lies_on_device(const Value& value) {
  bool found = false;
  each_tensor(value, [&](const Tensor& tensor) { found |= tensor.device().type != dl::kCPU; });
  return found;
}

Value on_host(const Value& value) {
  if (const auto* tensor = std::get_if<Tensor>(&value.data()))
    return *tensor && tensor->device().type != dl::kCPU ? host_copy(*tensor) : *tensor;
  return with_items(value, on_host).value_or(value);
}

}  // namespace tutti::detail

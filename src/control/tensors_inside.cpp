#include "control/tensors_inside.h"

#include "tutti/error.h"

namespace tutti {

std::optional<Origin> find_poison(const Value& value) {
  if (const auto* tensor = std::get_if<Tensor>(&value.data()))
    if (const auto* poison = tensor->poisoned()) return Origin{poison->worker, poison->seq};
  if (const auto* list = std::get_if<List>(&value.data()))
    for (const Value& item : *list)
      if (auto poison = find_poison(item)) return poison;
  return std::nullopt;
}

void poison_all(const Value& value, Origin origin) {
  if (const auto* tensor = std::get_if<Tensor>(&value.data()); tensor && *tensor) tensor->poison({origin.worker, origin.seq});
  if (const auto* list = std::get_if<List>(&value.data()))
    for (const Value& item : *list) poison_all(item, origin);
}

Value copy_tensors(const Value& value) {
  if (value.kind() == Value::Kind::kRegister) throw UsageError("a DRef can't travel inside a value");
  if (const auto* tensor = std::get_if<Tensor>(&value.data()); tensor && *tensor) {
    Tensor copy = Tensor::like(*tensor);
    copy.copy_from(tensor->contiguous());
    return copy;
  }
  const auto* list = std::get_if<List>(&value.data());
  if (!list) return value;
  List copies;
  for (const Value& item : *list) copies.push_back(copy_tensors(item));
  return copies;
}

}  // namespace tutti

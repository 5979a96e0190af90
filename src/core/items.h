// The values that lists and dicts hold.
#pragma once

#include <optional>
#include <utility>

#include "tutti/value.h"

namespace tutti::detail {

/// Calls use(item) for each item of a list, for each key and then each value of a dict; for no other kind of value.
template <class Use>
void each_item(const Value& value, Use use) {
  if (const auto* list = std::get_if<List>(&value.data()))
    for (const Value& item : *list) use(item);
  if (const auto* dict = std::get_if<Dict>(&value.data()))
    for (const List* items : {&dict->keys(), &dict->values()})
      for (const Value& item : *items) use(item);
}

/// A list or a dict with change(item) in the place of each item; nothing for other kinds of values.
template <class Change>
std::optional<Value> with_items(const Value& value, Change change) {
  const auto changed = [&](const List& items) {
    List result;
    result.reserve(items.size());
    for (const Value& item : items) result.push_back(change(item));
    return result;
  };
  if (const auto* list = std::get_if<List>(&value.data())) return changed(*list);
  const auto* dict = std::get_if<Dict>(&value.data());
  if (!dict) return std::nullopt;
  List keys = changed(dict->keys());
  return Dict(std::move(keys), changed(dict->values()));
}

}  // namespace tutti::detail

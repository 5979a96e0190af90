#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "agreement/origin.h"
#include "control/wire/command.h"
#include "tutti/value.h"

namespace tutti::detail {

/// A worker's numbered slots. Register 0 is reserved. A slot holds a value or says which failure took it.
class RegisterFile {
 public:
  struct Slot {
    Value value;
    std::optional<Origin> lost;
    uint32_t version = 0;  ///< another one whenever it is set or lost
  };
  void set(int64_t id, Value value) {
    Slot& slot = at(id);
    slot.value = std::move(value);
    slot.lost.reset();
    ++slot.version;
  }
  void lose(int64_t id, Origin origin) {
    set(id, {});
    at(id).lost = origin;
  }
  void kill(int64_t id) { set(id, {}); }
  const Slot& get(int64_t id) { return at(id); }
  /// Until registers grow.  @throws UsageError  it holds no function
  const Function& function(int64_t id) {
    const Slot& slot = at(id);
    if (const auto* function = std::get_if<Function>(&slot.value.data()); function && !slot.lost) return *function;
    refuse_call(slot);
  }
  Value argument(size_t position, const Value& arg, int written_arg);  ///< registers' values in the place of references
  Value written(const Command& command, int worker);                   ///< what its function writes into; None: nothing
  void lose_results(const Command& command, int worker, Origin origin);
  void clear() { slots_ = std::vector<Slot>(1); }

 private:
  Slot& at(int64_t id) {
    if (static_cast<uint64_t>(id) - 1 >= slots_.size() - 1) grow(id);
    return slots_[static_cast<size_t>(id)];
  }
  void grow(int64_t id);
  [[noreturn]] static void refuse_call(const Slot& slot);
  std::vector<Slot> slots_{1};  // register 0 is none
};

}  // namespace tutti::detail

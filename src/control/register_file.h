#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collective/agreement.h"
#include "tutti/value.h"

namespace tutti {

/// A worker's numbered slots. Register 0 is reserved. A slot holds a value or says which failure took it.
class RegisterFile {
 public:
  struct Slot {
    Value value;
    std::optional<Origin> lost;
  };
  void set(int64_t id, Value value) { at(id) = {std::move(value), std::nullopt}; }
  void lose(int64_t id, Origin origin) { at(id) = {{}, origin}; }
  void kill(int64_t id) { at(id) = {}; }
  const Slot& get(int64_t id) { return at(id); }
  void clear() { slots_.clear(); }

 private:
  Slot& at(int64_t id);
  std::vector<Slot> slots_;
};

}  // namespace tutti

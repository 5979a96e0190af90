#pragma once

#include <bitset>
#include <cstdint>
#include <memory>

#include "agreement/agreement.h"

namespace tutti {

/// The sub-communicators that a worker can lead at a time.
class SubSlots {
 public:
  explicit SubSlots(int worker) : worker_(worker) {}
  void begin_command();
  SubSlot take();  ///< @throws UsageError  none is free

 private:
  int worker_;
  uint32_t uses_ = 0;                                                                           // in this command
  std::shared_ptr<std::bitset<kSubSlots>> taken_ = std::make_shared<std::bitset<kSubSlots>>();  // in this command
};

}  // namespace tutti

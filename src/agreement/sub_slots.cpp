#include "agreement/sub_slots.h"

#include <fmt/format.h>

#include <utility>

namespace tutti {

void SubSlots::begin_command() {
  uses_ = 0;
  if (taken_->any()) taken_ = std::make_shared<std::bitset<kSubSlots>>();  // those of kept handles are void
}

SubSlot SubSlots::take() {
  const uint32_t use = uses_++;  // another use of a slot is another communicator: peers count its collectives anew
  for (size_t tried = 0; tried < kSubSlots; ++tried) {
    const size_t slot = (use + tried) % kSubSlots;
    if (taken_->test(slot)) continue;
    taken_->set(slot);
    std::shared_ptr<void> taken(nullptr, [slot, slots = std::weak_ptr(taken_)](void*) {
      if (auto alive = slots.lock()) alive->reset(slot);
    });
    return {static_cast<int>(slot), use, std::move(taken)};
  }
  throw UsageError(
      fmt::format("split: worker {} leads {} communicators in this command, which is the most; drop some", worker_, kSubSlots));
}

}  // namespace tutti

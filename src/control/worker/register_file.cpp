#include "control/worker/register_file.h"

#include <fmt/format.h>

#include "control/wire/tensors_inside.h"
#include "control/worker/replayed.h"
#include "core/items.h"
#include "tutti/function.h"

namespace tutti::detail {

void RegisterFile::grow(int64_t id) {
  constexpr int64_t kMost = int64_t{1} << 40;
  if (id <= 0 || id > kMost) throw WireError(fmt::format("register {} does not exist", id));
  slots_.resize(std::max<size_t>(static_cast<size_t>(id) + 1, slots_.size() * 2));
}

void RegisterFile::refuse_call(const Slot& slot) {
  if (slot.lost) throw UsageError(fmt::format("the function was lost when command {} failed; get it again", slot.lost->seq));
  throw UsageError(fmt::format("call of {}, expected a function", to_string(slot.value)));
}

/// What a function writes into, by its registration; None: nothing.
Value RegisterFile::written(const Command& command, int worker) {
  const auto* function = std::get_if<Function>(&get(command.func).value.data());
  const bool is_others = function && function->options().worker0_only && worker != 0;
  const int position = function && !is_others ? function->options().written_arg : -1;
  if (position < 0 || static_cast<size_t>(position) >= command.args.size()) return {};
  const auto* ref = std::get_if<RegisterRef>(&command.args[static_cast<size_t>(position)].data());
  return ref ? get(ref->id).value : Value();
}

/// What a command would have written is not to be read: its register, and the memory of the tensor it writes into.
void RegisterFile::lose_results(const Command& command, int worker, Origin origin) {
  switch (command.action) {
    case Action::kGetGlobalFunc: return lose(command.reg, origin);
    case Action::kCallPacked: {
      if (const auto* function = std::get_if<Function>(&get(command.func).value.data()))
        if (const auto replayed = Replayed::of(*function)) replayed->lose_results(*this, worker, origin);
      poison_all(written(command, worker), origin);
      return lose(command.reg, origin);
    }
    case Action::kCopyToWorker0:
      if (command.is_new) return lose(command.reg, origin);
      if (worker == 0) poison_all(get(command.reg).value, origin);
      return;
    case Action::kDebugSetRegister:
      if (command.worker != worker) return;
      poison_all(get(command.reg).value, origin);
      return lose(command.reg, origin);
    default: return;
  }
}

/// A value with the registers' in the place of references.
Value RegisterFile::argument(size_t position, const Value& arg, int written_arg) {
  if (auto resolved = with_items(arg, [&](const Value& item) { return argument(position, item, -1); })) return *resolved;
  const auto* ref = std::get_if<RegisterRef>(&arg.data());
  if (!ref) return arg;
  const auto& slot = get(ref->id);
  std::optional<Origin> lost = slot.lost;
  if (!lost && static_cast<int>(position) != written_arg) lost = find_poison(slot.value);
  if (lost)
    throw UsageError(
        fmt::format("argument {} was lost when command {} failed; make it again or overwrite it", position + 1, lost->seq));
  return slot.value;
}

}  // namespace tutti::detail

// Values between the controller and one worker: copies of host arrays, debug_get_from_remote and debug_copy_from.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "control/transfer/long_messages.h"
#include "control/transfer/staged_tensor.h"
#include "control/wire/host_array.h"
#include "control/wire/tensors_inside.h"
#include "control/worker/worker.h"
#include "core/env.h"

namespace tutti::detail {

void Worker::copy_on_worker0(const Command& command) {
  if (id_ != 0) {
    if (command.is_new) registers_.set(command.reg, Value());
    return;
  }
  const Value host = exchange_->take(command.token);
  if (command.is_new) return registers_.set(command.reg, on_device(host.as<Tensor>()));
  const auto& slot = registers_.get(command.reg);
  if (slot.lost) throw UsageError(fmt::format("the array was lost when command {} failed", slot.lost->seq));
  const auto* remote = std::get_if<Tensor>(&slot.value.data());
  if (!remote) throw UsageError(fmt::format("the register holds {}, expected a Tensor", to_string(slot.value)));
  if (command.action == Action::kCopyToWorker0) {
    remote->copy_from(unpack_host_array(host));
    remote->clear_poison();
  } else {
    if (const auto* poison = remote->poisoned())
      throw UsageError(fmt::format("the array was lost when command {} failed", poison->seq));
    host.as<Tensor>().copy_from(*remote);
  }
}

/// The array itself, where the worker's tensors lie in host memory.
Tensor Worker::on_device(const Tensor& host) const {
  if (device().type == dl::kCPU) return host;
  Tensor copy = Tensor::empty(host.shape(), host.dtype(), device());
  copy.copy_from(host);
  return copy;
}

void Worker::debug_get(const Command& command) {
  await_device();  // a failure of work that was under way is no answer
  Reply answer;
  std::vector<Tensor> large;
  try {
    answer = value_for_controller(command, large);
  } catch (const UsageError& error) {  // else it is a failure like any other
    answer = refusal(command, error.what());
  }
  outbox_.put(answer);
  if (answer.offers.empty()) return;
  const auto relax = [this] { segment_.check_not_abandoned(); };
  for (size_t i = 0; i < large.size(); ++i) {
    if (answer.offers[i].place.in_reach()) continue;
    const size_t size = answer.offers[i].size_bytes();
    if (mpi_) send_long(mpi_, 0, large[i].data(), size, relax);
    else send_staged(segment_, id_, Side::kWorker, large[i].data(), size, relax);
  }
  await_moved();
}

/// An answer, not a failure of the worker: origin.worker stays -1.
Reply Worker::refusal(const Command& command, const std::string& why) const {
  Reply answer{.kind = Reply::Kind::kError, .worker = id_, .seq = command.seq};
  answer.failure = {
      .host = host_name(), .pid = getpid(), .kind = "UsageError", .message = why, .function = to_string(command.action)};
  return answer;
}

/// `large`: what the answer offers.
Reply Worker::value_for_controller(const Command& command, std::vector<Tensor>& large) {
  const auto& slot = registers_.get(command.reg);
  Reply answer{.kind = Reply::Kind::kValue, .worker = id_, .seq = command.seq};
  Value made;
  const Value* value = &slot.value;
  if (has_content(*value)) try {
      value = &(made = travelling(*value));
    } catch (const UsageError&) {
      if (id_ != 0) throw;  // worker 0's any value
    }
  std::optional<Origin> lost = slot.lost ? slot.lost : find_poison(*value);
  if (lost) {
    answer.kind = Reply::Kind::kPoisoned;
    answer.origin = *lost;
    return answer;
  }
  if (lies_on_device(*value)) value = &(made = on_host(*value));
  if (std::string why = why_not_encodable(*value, 0, INT64_MAX); id_ != 0 && !why.empty()) return refusal(command, why);
  if (exchange_) {  // inside the process: tensors as a copy that later commands don't change; worker 0's any value
    answer.kind = Reply::Kind::kToken;
    answer.token = exchange_->put(copy_tensors(*value));
    return answer;
  }
  answer.value = set_apart(*value, large);
  for (Tensor& tensor : large) {
    if (const Tensor copy = within_reach(tensor)) tensor = copy;
    answer.offers.push_back(offer_of(tensor, segment_.has(0)));
  }
  return answer;
}

/// A copy, if that helps.
Tensor Worker::within_reach(const Tensor& tensor) const {
  if (!segment_.has(0) || offer_of(tensor, true).place.in_reach()) return {};
  Tensor copy = Tensor::like(tensor);
  if (!offer_of(copy, true).place.in_reach()) return {};
  copy.copy_from(tensor);
  return copy;
}

/// The controller copies into a tensor of ours: the one that is there, if it fits.
void Worker::debug_set(const Command& command) {
  Value value = command.token && exchange_ ? exchange_->take(command.token) : command.args.at(0);
  const auto& slot = registers_.get(command.reg);
  const auto* old_tensor = std::get_if<Tensor>(&slot.value.data());
  const auto fits = [&](int64_t count, DType dtype) {
    if (!old_tensor || !*old_tensor) return false;
    return old_tensor->element_count() == count && old_tensor->dtype() == dtype && old_tensor->is_contiguous();
  };
  if (!command.offers.empty()) {
    std::vector<Tensor> large;
    for (const Offer& offer : command.offers) {
      const bool in_place = value.kind() == Value::Kind::kRegister && fits(element_count(offer.shape), offer.dtype) &&
                            old_tensor->device().type == dl::kCPU;
      large.push_back(in_place ? *old_tensor : Tensor::empty(offer.shape, offer.dtype));
    }
    if (!fill(command, large)) return;
    value = put_together(value, large);
  }
  const auto* new_tensor = std::get_if<Tensor>(&value.data());
  if (!new_tensor || !fits(new_tensor->element_count(), new_tensor->dtype())) return registers_.set(command.reg, value);
  if (new_tensor->data() != old_tensor->data()) old_tensor->copy_from(*new_tensor);
  old_tensor->clear_poison();
}

/// false: the session is over.
bool Worker::fill(const Command& command, const std::vector<Tensor>& large) {
  Reply places{.kind = Reply::Kind::kPlaces, .worker = id_, .seq = command.seq};
  if (exchange_) places.token = exchange_->put(List(large.begin(), large.end()));
  else
    for (const Tensor& tensor : large) places.offers.push_back(offer_of(tensor, segment_.has(0)));
  outbox_.put(places);
  const auto relax = [this] { segment_.check_not_abandoned(); };
  for (size_t i = 0; i < places.offers.size(); ++i) {
    if (places.offers[i].place.in_reach()) continue;
    const size_t size = places.offers[i].size_bytes();
    if (mpi_) receive_long(mpi_, 0, large[i].data(), size, relax);
    else receive_staged(segment_, id_, Side::kWorker, large[i].data(), size, relax);
  }
  return await_moved();
}

/// Until the controller, if it shares memory with us, has moved what travels apart. false: the session is over.
bool Worker::await_moved() {
  const auto moved = [&] { return slot_.moved_seq.load(std::memory_order_seq_cst) >= command_.seq; };
  while (segment_.has(0) && !moved() && !segment_.abandoned())
    wait_until(slot_.reply_space, policy_, Clock::now() + std::chrono::seconds(1),
               [&] { return moved() || segment_.abandoned(); });
  return !segment_.abandoned();
}

}  // namespace tutti::detail

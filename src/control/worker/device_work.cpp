// A worker's device: work that is under way there.
#include <fmt/format.h>

#include "control/worker/members.h"
#include "control/worker/worker.h"
#include "device/devices.h"
#include "topology/assign.h"

namespace tutti::detail {
namespace {

std::string why_lost(const Origin& origin) {
  return fmt::format("the device's communicators were aborted after the failure of worker {} at command {}", origin.worker,
                     origin.seq);
}

}  // namespace

void Worker::init_ccl(std::string_view ccl, const Shape& device_ids) {
  collectives_.init_ccl(ccl, world(), group(), [&](int32_t type) {
    return device_id(layout(), id_, device_ids, device_api({type, 0}).pci_ids(),
                     mpi_ ? topology::assignment().gpu_pci : std::string());  // the plan is one for ranks
  });
}

/// While its work is under way. An error of a communicator is seen by some of its members only: they tell the others.
std::optional<Streams::Broken> Worker::look_at_device() {
  segment_.check_not_abandoned();
  const uint64_t since = collectives_.device_since();
  if (const std::string why = collectives_.poll_error(); !why.empty()) {
    agreement_.tell_device_loss(since);
    return Streams::Broken{std::make_exception_ptr(SystemError(why)), {id_, command_.seq}};
  }
  const auto loss = device_loss();
  if (!loss) return std::nullopt;
  const auto [worker, seq] = loss->origin;
  const std::string why = why_lost(loss->origin);
  if (!collectives_.lose_device(why)) return std::nullopt;
  return Streams::Broken{std::make_exception_ptr(ConsequenceError(loss->origin, why)), {worker, seq}};
}

std::optional<DeviceLoss> Worker::device_loss() {
  const uint64_t since = collectives_.device_since();
  return since > 0 ? segment_.board().device_loss(since) : std::nullopt;
}

/// A device's back end asks this while it waits for other members.
void Worker::check_device() {
  segment_.check_not_abandoned();
  if (const auto loss = device_loss()) throw ConsequenceError(loss->origin, why_lost(loss->origin));
}

/// The loss of a device has been raised: all workers drop their device communicators at this command, also those that have not
/// heard of the loss, and the next collectives make new ones.
void Worker::renew_device() {
  const DeviceLoss& loss = command_.loss;
  const uint64_t since = collectives_.device_since();
  if (since == 0 || loss.since < since) return;
  if (collectives_.lose_device(why_lost(loss.origin))) streams_.lose({loss.origin.worker, loss.origin.seq});
  try {
    streams_.finish();  // what the abort has ended
  } catch (const DeviceLost&) {
    throw;
  } catch (const std::exception&) {
    segment_.check_not_abandoned();
  }
  collectives_.renew(command_.seq);
}

/// Until what was started is complete. A hang report tells it from a function that computes.
void Worker::await_device() {
  if (!streams_.is_busy()) return;
  recorder_.name_function(ShortName(kOfDevice));
  const struct Named {
    Recorder& recorder;
    ~Named() { recorder.name_function({}); }
  } named{recorder_};
  streams_.finish();
}

}  // namespace tutti::detail

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

/// While its work is under way. An error of a communicator, or a member that does not come, is seen by some of the members only:
/// they tell the others. `waits`: for the other members; who only starts work need not have met them.
std::optional<Streams::Broken> Worker::look_at_device(bool waits) {
  segment_.check_not_abandoned();
  if (collectives_.device_is_lost()) return std::nullopt;
  const uint64_t since = collectives_.device_since();
  const Origin here{id_, command_.seq};
  const auto broken = [&](std::exception_ptr error, Origin origin) {
    agreement_.announcements().withdraw();
    return Streams::Broken{std::move(error), {origin.worker, origin.seq}};
  };
  if (const auto loss = device_loss()) {
    const std::string why = why_lost(loss->origin);
    collectives_.lose_device(why);
    return broken(std::make_exception_ptr(ConsequenceError(loss->origin, why)), loss->origin);
  }
  if (const std::string why = collectives_.poll_error(); !why.empty()) {
    agreement_.tell_device_loss({since, here});  // first: the abort takes time, and shows on the others
    collectives_.lose_device(why);
    return broken(std::make_exception_ptr(SystemError(why)), here);
  }
  if (!waits) return std::nullopt;
  if (const auto why = agreement_.announcements().look()) {
    agreement_.tell_device_loss({since, why->origin.value_or(here)});
    collectives_.lose_device(why->message);
    const Origin origin = why->origin.value_or(first_loss().origin);  // several may find it: one of them reports it
    return broken(why->origin || origin != here ? std::make_exception_ptr(ConsequenceError(origin, why->message))
                                                : std::make_exception_ptr(UsageError(why->message)),
                  origin);
  }
  return std::nullopt;
}

std::optional<DeviceLoss> Worker::device_loss() {
  const uint64_t since = collectives_.device_since();
  return since > 0 ? segment_.board().device_loss(since) : std::nullopt;
}

/// Once it has been told: the first one's stays.
DeviceLoss Worker::first_loss() {
  for (;; yield_cpu()) {
    if (const auto loss = device_loss()) return *loss;
    segment_.check_not_abandoned();  // the first one is about to write it
  }
}

/// A device's back end asks this while it starts work, which may have to wait for other members.
void Worker::check_device(bool waits) {
  const auto broken = look_at_device(waits);
  if (!broken) return;
  streams_.lose(broken->origin);
  std::rethrow_exception(broken->error);
}

/// Of this thread.
void Worker::set_device() {
  if (StreamApi* streams = device_api(device()).streams()) streams->set_device(device().id);
}

/// At the beginning of each command.
void Worker::enter_device() {
  if (device().type == dl::kCPU) return;
  std::exception_ptr failed;
  try {
    set_device();
  } catch (const DeviceLost&) {
    throw;
  } catch (const std::exception&) {
    failed = std::current_exception();  // all workers renew at the same command
  }
  renew_device();
  if (failed) std::rethrow_exception(failed);
}

/// A failure was raised. The members may have started different collectives since: all give up their device communicators at this
/// command, and the next collectives make new ones. What is under way ends well if all have started the same; else all that was
/// written since the last wait is lost.
void Worker::renew_device() {
  const DeviceLoss& loss = command_.loss;
  if (collectives_.device_since() == 0 || loss.since < collectives_.device_since()) return;
  std::exception_ptr news;
  try {
    streams_.finish();
  } catch (const DeviceLost&) {
    throw;
  } catch (const ConsequenceError&) {
  } catch (const std::exception& error) {
    segment_.check_not_abandoned();
    news = std::current_exception();
    agreement_.tell_device_loss({collectives_.device_since(), {id_, command_.seq}});
    collectives_.lose_device(error.what());  // it may have come before a look at the others
  }
  collectives_.renew(command_.seq);
  if (!news) return;
  drop_token();  // the command won't run
  std::rethrow_exception(news);
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

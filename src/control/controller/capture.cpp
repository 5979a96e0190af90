// While a program is recorded (program/recording.h) its recording takes the calls.
#include <fmt/format.h>

#include "control/controller/controller.h"

namespace tutti::detail {

void Controller::capture(const std::shared_ptr<Capture>& capture) {
  const Turn turn(*this);
  refuse_to_record("another recording");
  capture_ = capture;
  capturing_ = capture.get();
}

void Controller::release(const Capture& capture) {
  const Turn turn(*this);
  if (capture_.lock().get() != &capture) throw UsageError("the recording has ended; record() begins another one");
  capture_.reset();
  capturing_ = nullptr;
}

void Controller::forget(const Capture& capture) {
  const Capture* it = &capture;
  capturing_.compare_exchange_strong(it, nullptr);
}

void Controller::refuse_to_record(const char* what) const {
  if (!is_recording()) return;
  if (const auto capture = capture_.lock())
    throw UsageError(
        fmt::format("{} can't be recorded: call it before or after the recording that began at {}", what, capture->began()));
}

/// The array itself: each replay reads or fills it.
DRef Controller::lend_to_steps(const Tensor& host, Where where) {
  return send_call(builtin("lend", where), List{static_cast<int64_t>(exchange_.put(host))}, where);
}

DRef Controller::new_register() { return DRef(std::make_shared<DRefState>(shared_from_this(), registers_.take(), id_)); }

DRef Controller::watched(const DRef& ref, std::function<void(int64_t id)> gone) {
  return DRef(std::shared_ptr<DRefState>(
      ref.state_.get(), [kept = ref.state_, gone = std::move(gone)](const DRefState* state) { gone(state->id); }));
}

int64_t Controller::id_of(const DRef& ref) { return ref.state_->id; }

}  // namespace tutti::detail

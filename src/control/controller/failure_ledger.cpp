#include "control/controller/failure_ledger.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::detail {
namespace {

constexpr size_t kRemembered = 1024;
constexpr size_t kRememberedText = size_t{16} << 10;  // bytes of each text

/// The ends of a text, whole characters of UTF-8.
std::string shortened(const std::string& text) {
  if (text.size() <= kRememberedText) return text;
  const auto starts = [&](size_t at) { return (static_cast<unsigned char>(text[at]) & 0xc0) != 0x80; };
  size_t head = kRememberedText / 2, tail = text.size() - kRememberedText / 2;
  while (head > 0 && !starts(head)) --head;
  while (tail < text.size() && !starts(tail)) ++tail;
  return fmt::format("{}\n[{} bytes are left out: they were in the error when it was raised first]\n{}",
                     std::string_view(text).substr(0, head), tail - head, std::string_view(text).substr(tail));
}

WorkerFailure remembered(WorkerFailure failure) {
  failure.message = shortened(failure.message);
  failure.traceback = shortened(failure.traceback);
  return failure;
}

}  // namespace

void FailureLedger::add(Reply report) {
  auto& kind = report.kind == Reply::Kind::kError ? failures_ : consequences_;
  kind.push_back({std::move(report.failure), report.origin});
  loss_ = std::max(loss_, report.loss);
}

void FailureLedger::acknowledge(Command& command) {
  command.acknowledged.clear();
  command.loss = {};
  if (command.action == Action::kGetGlobalFunc) return;  // it must not fail for another reason: its result is kept
  command.acknowledged = std::exchange(acknowledgements_, {});
  command.loss = command.acknowledged.empty() ? DeviceLoss() : std::exchange(loss_, {});
}

bool FailureLedger::is_reported(Origin origin) const {
  return raised_.contains(origin) ||
         std::any_of(failures_.begin(), failures_.end(), [&](const Pending& p) { return p.origin == origin; });
}

std::set<int> FailureLedger::silent() const {
  std::set<int> workers;
  for (const Pending& consequence : consequences_)
    if (!is_reported(consequence.origin)) workers.insert(consequence.origin.worker);
  return workers;
}

bool FailureLedger::has_news() const { return !failures_.empty() || !silent().empty(); }

std::vector<WorkerFailure> FailureLedger::raise() {
  for (Pending& consequence : std::exchange(consequences_, {})) {
    if (!is_reported(consequence.origin)) failures_.push_back(std::move(consequence));
    else if (raised_.contains(consequence.origin))
      acknowledgements_.push_back(consequence.origin);  // its worker may have heard of it later than of the acknowledgement
  }
  std::vector<WorkerFailure> failures;
  for (Pending& pending : std::exchange(failures_, {})) {
    acknowledgements_.push_back(pending.origin);
    raised_.insert_or_assign(pending.origin, remembered(pending.failure));
    failures.push_back(std::move(pending.failure));
  }
  while (raised_.size() > kRemembered)
    raised_.erase(std::min_element(raised_.begin(), raised_.end(), [](auto& a, auto& b) { return a.first.seq < b.first.seq; }));
  return failures;
}

const WorkerFailure* FailureLedger::raised(Origin origin) const {
  const auto it = raised_.find(origin);
  return it == raised_.end() ? nullptr : &it->second;
}

std::string FailureLedger::not_raised() const {
  std::vector<WorkerFailure> failures;
  for (const auto* pending : {&failures_, &consequences_})
    for (const Pending& p : *pending) failures.push_back(p.failure);
  return failures.empty() ? "" : fmt::format("\nfailures that had arrived by then:\n{}", RemoteError(std::move(failures)).what());
}

}  // namespace tutti::detail

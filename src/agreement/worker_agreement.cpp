#include "agreement/worker_agreement.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <thread>
#include <utility>

#include "agreement/across_nodes.h"
#include "core/env.h"

namespace tutti::detail {
namespace {

using namespace std::chrono_literals;
constexpr auto kMoving = 400ms;  // a member that moves data for longer is stuck, or dead; less than kGrace

}  // namespace

void WorkerAgreement::begin_command(uint64_t seq) {
  seq_ = seq;
  indices_.clear();
  latest_ = nullptr;
  own_.begin_command();
  announcements_.withdraw();
}

CollectiveId WorkerAgreement::next_id(CommKey key) {
  plane_.next_collective(seq_);
  if (!latest_ || latest_->first != key) latest_ = &*indices_.try_emplace(key, 0).first;
  uint32_t& next = latest_->second;
  if (next == UINT32_MAX)
    throw UsageError(fmt::format("command {} has run {} collectives on one communicator, the most there may be", seq_, next));
  return {key, seq_, next++};
}

bool WorkerAgreement::has_taken(const CollectiveId& id) const {
  const auto next = indices_.find(id.comm);
  return id.seq != seq_ || (next != indices_.end() && id.index < next->second);
}

const std::vector<Arrival>& WorkerAgreement::agree(Arrival& mine) {
  plane_.begins(mine.id, mine.signature);
  own_.check_may_join();
  const bool on_node = std::all_of(mine.members.begin(), mine.members.end(), [&](int w) { return board_.has(w); });
  const bool line_is_enough = on_node && !own_.has_left() && mine.counts.empty();
  using Readers = OwnArrivals::Readers;
  const auto key = own_.join(mine, line_is_enough                ? Readers::kLine
                                   : on_node && !own_.has_left() ? Readers::kRecord
                                                                 : Readers::kLeader);
  // others may agree with us from here on; and those that have lost the session wait for us, or we see that it is lost
  board_.check_not_abandoned();
  try {
    if (on_node) node_.agree(mine, key, line_is_enough, arrivals_);
    else agree_across_nodes(board_, policy_, own_, mine, arrivals_);
  } catch (const UsageError&) {  // it has left, as has a ConsequenceError's
    throw;
  } catch (const ConsequenceError&) {
    throw;
  } catch (const TransportError&) {
    throw;
  } catch (const std::exception& error) {
    broken(to_string(mine.signature.op), error.what());
  }
  plane_.agreed();  // before others may go on: they must not see us wait
  hears_of_all_ = on_node && mine.hears_of_all;
  takes_at_end_ = arrivals_.front().attached.has_bytes;  // as all are
  if (takes_at_end_) return arrivals_;
  if (hears_of_all_) own_.take_quietly();
  else own_.take();
  return arrivals_;
}

bool WorkerAgreement::announce(const CollectiveId& id, const Signature& signature, const std::vector<int>& members) {
  plane_.begins(id, signature);
  announcements_.add(id, signature, members);
  if (board_.header().questions.load(std::memory_order_relaxed) > 0) plane_.tell_leader();
  plane_.agreed();
  hears_of_all_ = false;
  return true;
}

void WorkerAgreement::lost() {
  own_.over();
  const auto end = Clock::now() + kMoving;
  for (int32_t other : board_.workers())
    while (board_.may_move(other) && Clock::now() < end) std::this_thread::sleep_for(100us);
}

void WorkerAgreement::ends(bool well) {
  own_.over();
  announcements_.withdraw();  // what was asked while the work began
  plane_.ends(well);
  if (std::exchange(takes_at_end_, false)) own_.take();
  else if (well && hears_of_all_) own_.all_took();
}

void WorkerAgreement::tell_device_loss(const DeviceLoss& loss) {
  board_.tell_device_loss(loss);
  plane_.tell_leader();
}

/// Memory of a member that has died can't be mapped, or there is none left, say: who watches over a member that has died knows
/// the cause better, and may speak first.
void WorkerAgreement::broken(std::string_view what, std::string_view why) {
  for (const auto end = Clock::now() + kMoving; !board_.abandoned() && Clock::now() < end;) std::this_thread::sleep_for(1ms);
  try {
    plane_.abandon(fmt::format("worker {} (pid {} on {}) failed inside a collective that the others may have agreed on: {}: {}",
                               own_.worker(), getpid(), host_name(), what, why));
  } catch (const std::bad_alloc&) {
    plane_.abandon("a worker has no memory left, inside a collective that the others may have agreed on");
  }
  lost();
  board_.check_not_abandoned();
  std::abort();  // not reached
}

}  // namespace tutti::detail

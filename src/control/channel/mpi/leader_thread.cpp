#include "control/channel/mpi/leader_thread.h"

#include "control/channel/mpi/end_job.h"
#include "core/log.h"

namespace tutti::detail {
namespace {

using namespace std::chrono_literals;
constexpr auto kAwake = 200us;                  // how long to yield after the last work before sleeping
constexpr auto kIdle = 1000ms, kLongNap = 2ms;  // nothing for that long: the next may wait a little longer
constexpr auto kNap = 1ms;                      // MPI has no doorbell: how long a message may wait for us

}  // namespace

LeaderThread::LeaderThread(Segment& segment, int node, MPI_Comm control, LeaderMail& mail)
    : Leader(segment, node, control, mail) {
  thread_ = std::thread([this] { run(); });
}

LeaderThread::~LeaderThread() { thread_.join(); }

void LeaderThread::stop_after(uint64_t seq) {
  stop_seq_.store(seq);
  segment().header().controller.ring();
}

void LeaderThread::check() const {
  if (failed_.load()) throw TransportError(failure_);
}

bool LeaderThread::done() { return abandoned_.load() || (stop_seq_.load() != UINT64_MAX && has_passed_on(stop_seq_.load())); }

void LeaderThread::stay_awake() {
  last_work_.store(Clock::now().time_since_epoch().count());
  segment().header().controller.ring();
}

void LeaderThread::run() try {
  const auto work = [&] { last_work_.store(Clock::now().time_since_epoch().count()); };
  const auto idle = [&] { return Clock::now().time_since_epoch() - Clock::duration(last_work_.load()); };
  work();
  while (!done()) {
    if (!abandoned_.load()) segment().check_not_abandoned();
    if (step()) {
      work();
    } else if (idle() < kAwake) {
      yield_cpu();
    } else {
      Doorbell& bell = segment().header().controller;
      const uint32_t seen = bell.value.load(std::memory_order_acquire);
      bell.sleepers.fetch_add(1, std::memory_order_seq_cst);
      const bool worked = step();  // what came before we counted as a sleeper
      if (worked) work();
      else bell.sleep(seen, idle() < kIdle ? kNap : kLongNap);
      bell.sleepers.fetch_sub(1, std::memory_order_seq_cst);
    }
  }
  if (abandoned_.load()) drop_sends();
  else say_good_bye();
} catch (const std::exception& error) {
  lose(error.what());
}

/// A part of the job is out of reach, and what is left can't go on: MPI has no way to leave the lost ranks out. Everyone is told
/// why; what does not end by itself is ended.
void LeaderThread::lose(const std::string& why) {
  failure_ = why;
  failed_.store(true);
  segment().abandon(why);
  try {
    tell_neighbours_lost(why);
  } catch (const std::exception& error) {
    log(LogLevel::kInfo, "control plane: {}", error.what());
  }
  end_node(segment());
}

}  // namespace tutti::detail

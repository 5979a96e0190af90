#include "control/channel/mpi/peer_watch.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "control/channel/mpi/end_job.h"
#include "control/watch/worker_state.h"
#include "core/env.h"
#include "core/exit_codes.h"
#include "core/log.h"
#include "core/process.h"

namespace tutti::detail {
namespace {

using namespace std::chrono_literals;
constexpr auto kLaunchers = 500ms;  // a launcher that ends the job by itself has the better exit code
constexpr auto kTheirOwn = 5s;      // for the ranks to end by themselves
constexpr int kJoining = 5;         // milliseconds between looks for peers that have not joined yet

}  // namespace

PeerWatch::PeerWatch(Segment& segment, int worker) : segment_(segment), worker_(worker), stop_(::eventfd(0, EFD_CLOEXEC)) {
  if (segment.workers().size() < 2) return;
  if (!stop_) {
    log(LogLevel::kInfo, "no eventfd: processes of this node that end are noticed by the launcher only");
    return;
  }
  thread_ = std::jthread([this] { watch(); });
}

PeerWatch::~PeerWatch() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!::write(stop_.get(), &one, sizeof one);
}

void PeerWatch::watch() {
  const int leader = segment_.workers().front();
  std::vector<int> missing;
  if (worker_ != leader) missing = {leader};
  else missing.assign(segment_.workers().begin() + 1, segment_.workers().end());
  std::vector<pollfd> fds{{stop_.get(), POLLIN, 0}};
  std::vector<int> peers{-1};
  std::vector<Fd> owned;
  for (;;) {
    std::erase_if(missing, [&](int peer) {
      const auto pid = segment_.pid_here(peer);
      if (!pid) return false;
      if (*pid == 0) return true;  // can't be watched
      Fd fd = open_pidfd(*pid);
      if (!fd && errno == ESRCH) {
        lose(peer);
      } else if (!fd) {
        log(LogLevel::kInfo, "worker {} is not watched: pidfd_open: {}", peer, std::strerror(errno));
      } else {
        fds.push_back({fd.get(), POLLIN, 0});
        peers.push_back(peer);
        owned.push_back(std::move(fd));
      }
      return true;
    });
    const int n = ::poll(fds.data(), fds.size(), missing.empty() ? -1 : kJoining);
    if (n < 0 && errno != EINTR) return;
    if (n > 0 && fds[0].revents) return;
    for (size_t i = 1; n > 0 && i < fds.size(); ++i)
      if (fds[i].revents) {
        fds[i].fd = -1;  // no more of it
        lose(peers[i]);
      }
  }
}

bool PeerWatch::stopped_within(std::chrono::milliseconds time) const {
  pollfd stop{stop_.get(), POLLIN, 0};
  return ::poll(&stop, 1, static_cast<int>(time.count())) > 0;
}

void PeerWatch::lose(int peer) {
  WorkerSlot& slot = segment_.slot(peer);
  if (slot.has_left.load() || stopped_within(kLaunchers)) return;
  const bool is_known = segment_.abandoned();
  const std::string why = is_known ? segment_.board().header().why
                                   : fmt::format("worker {} (pid {} on {}) has ended in the middle of the session, {}", peer,
                                                 slot.pid.load(), host_name(), last_seen(segment_, peer));
  segment_.abandon(why);
  if (!is_known && stopped_within(kTheirOwn)) return;
  fmt::print(stderr, "[rank {} {}] {}\n", worker_, host_name(), why);
  abort_job(kExitUncaught);
}

}  // namespace tutti::detail

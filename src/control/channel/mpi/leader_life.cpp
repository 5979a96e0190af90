// Leaders miss each other: signs of life, and what follows when they stay away.
#include <fmt/format.h>

#include "control/channel/mpi/leader.h"
#include "control/channel/workers.h"
#include "core/env.h"

namespace tutti::detail {

/// Neighbours that are silent from now on are not lost.
void Leader::say_good_bye() {
  for (int rank : heartbeat_->neighbours()) send(rank, Kind::kBye, {});
  finish_sends();
}

void Leader::tell_neighbours_lost(const std::string& why) {
  Writer body;
  body.text(why);
  for (int rank : heartbeat_->neighbours()) send(rank, Kind::kLost, body.bytes());
  finish_sends();
}

void Leader::finish_sends() {
  for (const auto end = now_() + kGrace; !sending_.empty() && now_() < end; yield_cpu()) complete_sends();
}

void Leader::drop_sends() {
  for (Sending& s : sending_) MPI_Request_free(&s.request);
}

/// What a neighbour sends may wait behind data that our workers exchange with its own: on one connection, in order. How long that
/// takes at 10 MB/s.
double Leader::data_seconds() {
  double bytes = 0;
  for (int32_t worker : segment_.workers())
    if (const auto last = segment_.recorder(worker).last(Record::What::kCollective); last && last->running() && last->agreed)
      bytes = std::max(bytes,
                       static_cast<double>(last->signature.count) * last->signature.dtype.bits * last->signature.dtype.lanes / 8);
  return bytes / 10e6;
}

void Leader::beat() {
  const auto now = now_();
  if (const auto silent = heartbeat_->silent(now);
      silent && silent->seconds > static_cast<double>(heartbeat_->limit().count()) + data_seconds()) {
    const auto& layout = segment_.layout();
    const auto ranks = layout.workers_of(layout.node_of[static_cast<size_t>(silent->rank)]);
    throw TransportError(fmt::format(
        "rank {} on {} has not been heard from for {:.1f} s: its host or the network is down, or it is stopped (its node has "
        "rank{} {}; TUTTI_HEARTBEAT={} sets the limit, 0: none)",
        silent->rank, silent->host.empty() ? "another host" : silent->host, silent->seconds, ranks.size() > 1 ? "s" : "",
        fmt::join(ranks, ", "), heartbeat_->limit().count()));
  }
  if (!heartbeat_->due(now)) return;
  Writer body;
  body.text(host_name());
  for (int rank : heartbeat_->neighbours()) send(rank, Kind::kBeat, body.bytes());
}

}  // namespace tutti::detail

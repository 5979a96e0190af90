// Leaders miss each other: signs of life, and what follows when they stay away.
#include <fmt/format.h>

#include "control/channel.h"
#include "control/mpi/leader.h"
#include "control/mpi/mpi_job.h"
#include "core/env.h"
#include "core/log.h"

namespace tutti {

/// Neighbours that are silent from now on are not lost.
void Leader::say_good_bye() {
  for (int rank : heartbeat_->neighbours()) send(rank, Kind::kBye, {});
  for (const auto end = Clock::now() + kGrace; !sending_.empty() && Clock::now() < end; yield_cpu()) complete_sends();
}

/// A part of the job is out of reach, and what is left can't go on: MPI has no way to leave the lost ranks out. Everyone is told why;
/// what does not end by itself is ended.
void Leader::lose(const std::string& why) {
  failure_ = why;
  failed_.store(true);
  segment_.abandon(why);
  try {
    Writer body;
    body.text(why);
    for (int rank : heartbeat_->neighbours()) send(rank, Kind::kLost, body.bytes());
    for (const auto end = Clock::now() + kGrace; !sending_.empty() && Clock::now() < end; yield_cpu()) complete_sends();
  } catch (const std::exception& error) {
    log(LogLevel::kInfo, "control plane: {}", error.what());
  }
  end_node(segment_);
}

/// What a neighbour sends may wait behind data that our workers exchange with its own: on one connection, in order. How long that
/// takes at 10 MB/s.
double Leader::data_seconds() {
  double bytes = 0;
  for (int32_t worker : segment_.workers())
    if (const auto last = segment_.recorder(worker).last(Record::What::kCollective); last && last->running() && last->agreed)
      bytes = std::max(bytes, static_cast<double>(last->signature.count) * last->signature.dtype.bits * last->signature.dtype.lanes / 8);
  return bytes / 10e6;
}

void Leader::beat() {
  const auto now = Clock::now();
  if (const auto silent = heartbeat_->silent(now); silent && silent->seconds > static_cast<double>(heartbeat_->limit().count()) + data_seconds()) {
    const auto& layout = segment_.layout();
    const auto ranks = layout.workers_of(layout.node_of[static_cast<size_t>(silent->rank)]);
    throw TransportError(fmt::format("rank {} on {} has not been heard from for {:.1f} s: its host or the network is down, or it is stopped (its node has "
                                     "rank{} {}; TUTTI_HEARTBEAT={} sets the limit, 0: none)",
                                     silent->rank, silent->host.empty() ? "another host" : silent->host, silent->seconds, ranks.size() > 1 ? "s" : "",
                                     fmt::join(ranks, ", "), heartbeat_->limit().count()));
  }
  if (!heartbeat_->due(now)) return;
  Writer body;
  body.text(host_name());
  for (int rank : heartbeat_->neighbours()) send(rank, Kind::kBeat, body.bytes());
}

}  // namespace tutti

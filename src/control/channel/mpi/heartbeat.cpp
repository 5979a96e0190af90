#include "control/channel/mpi/heartbeat.h"

#include <algorithm>
#include <utility>

namespace tutti::detail {

Heartbeat::Heartbeat(std::chrono::seconds limit, std::vector<int> neighbours, Clock::time_point now)
    : limit_(limit), neighbours_(std::move(neighbours)), asked_(now) {}

bool Heartbeat::due(Clock::time_point now) {
  if (limit_.count() == 0 || now - sent_ < std::min<Clock::duration>(std::chrono::seconds(1), Clock::duration(limit_) / 5))
    return false;
  sent_ = now;
  return true;
}

void Heartbeat::heard(int rank, Clock::time_point now) {
  if (limit_.count() > 0 && std::find(neighbours_.begin(), neighbours_.end(), rank) != neighbours_.end()) heard_[rank].at = now;
}

void Heartbeat::says_where(int rank, std::string host) {
  if (const auto it = heard_.find(rank); it != heard_.end()) it->second.host = std::move(host);
}

std::optional<Heartbeat::Silent> Heartbeat::silent(Clock::time_point now) {
  const bool slept = now - std::exchange(asked_, now) > Clock::duration(limit_) / 4;  // stopped, say by a debugger
  for (auto& [rank, neighbour] : heard_) {
    if (slept) neighbour.at = now;
    else if (now - neighbour.at > limit_)
      return Silent{rank, neighbour.host, std::chrono::duration<double>(now - neighbour.at).count()};
  }
  return std::nullopt;
}

}  // namespace tutti::detail

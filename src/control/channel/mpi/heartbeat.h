#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/doorbell.h"

namespace tutti::detail {

/// Which neighbours a leader has heard from. Any message counts; one that has never come is not missed (its leader starts later),
/// nor is one that has said good-bye.
class Heartbeat {
 public:
  /// `limit` 0: off
  Heartbeat(std::chrono::seconds limit, std::vector<int> neighbours, Clock::time_point now);
  std::chrono::seconds limit() const { return limit_; }
  const std::vector<int>& neighbours() const { return neighbours_; }
  bool due(Clock::time_point now);              ///< it is time to send to all neighbours
  void heard(int rank, Clock::time_point now);  ///< also of ranks that are no neighbours: those are not watched
  void says_where(int rank, std::string host);
  void leaves(int rank) { heard_.erase(rank); }

  struct Silent {
    int rank;
    std::string host;
    double seconds;
  };
  /// A neighbour that has been silent for longer than the limit. To be asked often: when we ourselves did not run, nobody is
  /// blamed.
  std::optional<Silent> silent(Clock::time_point now);

 private:
  struct Neighbour {
    Clock::time_point at{};
    std::string host;
  };
  std::chrono::seconds limit_;
  std::vector<int> neighbours_;
  std::map<int, Neighbour> heard_;
  Clock::time_point sent_{}, asked_;
};

}  // namespace tutti::detail

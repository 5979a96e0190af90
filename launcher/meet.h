#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace tutti::launcher {

/// What each of a node's local ranks says, by rank. All of them have to call it with the same key, which nobody else has. Without
/// MPI: rank 0 collects on a socket, of which nothing stays behind.  @return  nothing: some did not come within `patience`
std::optional<std::vector<std::string>> meet(const std::string& key, int rank, int ranks, const std::string& said,
                                             std::chrono::milliseconds patience);

}  // namespace tutti::launcher

// What members tell each other while they begin a communicator.
#pragma once

#include <string>
#include <vector>

#include "collective/making.h"
#include "collective/nccl/abi.h"

namespace tutti::detail::nccl {

/// How far a member has come. All see all of them, so they begin together or fail together.
struct Progress {
  enum class State : char { kUnderWay, kDone, kFailed } state = State::kUnderWay;
  char why[247] = {};
  // in the first round
  UniqueId id = {};    // of the first member
  char gpu[128] = {};  // its physical name; "": not known
  void fail(const std::string& text);
  void is_on(Device device);
};

/// By rank.  @throws SystemError  a member has failed
std::vector<Progress> exchange(const Making& making, const Progress& mine);
/// @throws UsageError  two members have one GPU, which is not allowed: on all members
void check_gpus(const Making& making, const std::vector<Progress>& all);

}  // namespace tutti::detail::nccl

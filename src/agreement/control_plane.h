#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "agreement/collective_id.h"
#include "agreement/deadlock.h"
#include "agreement/signature.h"

namespace tutti::detail {

/// What a worker's agreement asks of the control plane.
class ControlPlane {
 public:
  virtual ~ControlPlane() = default;
  virtual void next_collective(uint64_t /*seq*/) {}                           ///< of command `seq`; may throw: a fault for tests
  virtual void begins(const CollectiveId& /*id*/, const Signature& /*s*/) {}  ///< to wait for the others
  virtual void agreed() noexcept {}
  virtual void moves(uint64_t /*seq*/) {}  ///< data, in command `seq`; may throw: a fault for tests
  virtual void ends(bool /*well*/) noexcept {}
  virtual void tell_leader() noexcept = 0;         ///< an arrival is there that concerns other nodes, or may
  virtual std::vector<MemberState> look() = 0;     ///< what the workers of this node do
  virtual void abandon(std::string_view why) = 0;  ///< the session
};

}  // namespace tutti::detail

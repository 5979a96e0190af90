#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "agreement/agreement.h"
#include "collective/buffer.h"
#include "device/device_api.h"
#include "tutti/worker.h"

namespace tutti::detail {

/// Bytes [begin, begin + size) of a member's src, as long as the collective runs.
using SourceOf = std::function<const char*(int rank, int64_t begin, int64_t size)>;
/// What a member of an exchange does with the others' src.
using ReadSources = std::function<void(const SourceOf&)>;

/// What the members of a collective have agreed on, or this one has announced, as one of them sees it: operands are checked and
/// fit together. src and dst are disjoint; of allreduce and broadcast they may be the same, of allgather src may be its part of
/// dst.
struct Operation {
  CollectiveOp op;
  int rank;         ///< of this member
  Buffer src, dst;  ///< kSendRecv: member 0 sends src, member 1 receives dst
  ReduceOp reduce = ReduceOp::kSum;
  int root = 0;
  std::vector<int64_t> counts = {};  ///< scatter, gather: each member's part; kAllToAllV: elements to each member, then from each
  const ReadSources* read = nullptr;              ///< kExchange: not called, on any member, if one can't reach another's src
  const std::vector<int>& workers;                ///< the members, by rank
  const std::vector<Arrival>* members = nullptr;  ///< their arrivals, as long as start() runs; null: they have not met
  Device device = {};                             ///< of both buffers
  Stream stream = nullptr;
};

/// The data plane's seam: moves bytes among members that have agreed and are all inside the same collective. An exception ends
/// the session: the other members can't be told. Called by worker threads only.
class Communicator {
 public:
  virtual ~Communicator() = default;  ///< work that was started goes on
  /// Host memory: the collective is complete on return. Other memory: it is enqueued on its stream, and complete when that is.
  virtual void start(const Operation& operation) = 0;
  /// Why work that was started can't complete; "" as long as nothing is known against it.
  virtual std::string poll_error() { return {}; }
  /// What was started ends, with an error of its stream or without, and nothing is started any more. The other members do the
  /// same, or are lost.
  virtual void abort() noexcept {}
};

}  // namespace tutti::detail

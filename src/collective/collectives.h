#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "collective/communicator.h"

namespace tutti {

/// The collectives of one worker: checks operands, agrees, lets the back end move the bytes, keeps poison right.
/// Used by the worker's thread only.
class Collectives {
 public:
  Collectives(DataPlane plane, Agreement& agreement) : plane_(plane), agreement_(agreement) {}

  struct Members {
    CommKey key = 0;
    std::vector<int> workers;  // by rank
    int rank = 0;
    std::shared_ptr<void> slot = nullptr;  // of a sub-communicator, on its leader
  };

  static const Tensor kNone;  ///< stands for an operand that a member does not have
  /// What the operands of one collective are.
  struct Operation {
    CollectiveOp op;
    const Tensor *src = &kNone, *dst = &kNone;  // the caller's
    ReduceOp reduce = ReduceOp::kSum;
    int root = 0;
    std::vector<int64_t> counts = {};
  };
  void run(const Members& comm, Operation operation);
  Members split(const Members& comm, int color, int key);
  /// MPI_Comm* of these members for messages of the user's own, made on first use: then collective.  @throws UsageError  no MPI
  void* user_comm(const Members& comm);

  /// Drops all communicators; the next collective makes new ones. Collective over all workers of the session.
  void init_ccl(std::string_view ccl, const Members& world);
  const std::string& ccl() const { return ccl_; }
  void end_command();  ///< sub-communicators end with it
  void end_session() { communicators_.clear(), user_comms_.clear(); }

 private:
  Arrival& arrive(const Members& comm, const CollectiveId& id, const Signature& signature, const std::vector<int64_t>& counts);
  void offer(const Members& comm, Arrival& mine, const Operation& operation, Buffer src, Buffer dst) const;
  Signature check(const Members& comm, Operation& operation) const;
  void move(const Members& comm, const Operation& operation, Buffer src, Buffer dst, const std::vector<Arrival>& arrivals);
  Communicator& back_end(const Members& comm);
  void drop(CommKey first, CommKey end);

  DataPlane plane_;
  Agreement& agreement_;
  Arrival mine_;  // its memory is used again
  std::string ccl_ = "auto";
  std::map<CommKey, std::unique_ptr<Communicator>> communicators_;  // ordered: freed in the same order everywhere
  struct UserComm {
    std::shared_ptr<void> comm, slot;  // a sub-communicator's slot stays taken with it
  };
  std::map<CommKey, UserComm> user_comms_;
};

}  // namespace tutti

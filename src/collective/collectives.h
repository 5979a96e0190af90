#pragma once

#include <array>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collective/ccl.h"

namespace tutti::detail {

/// The collectives of one worker: checks operands, agrees, lets the back end start, keeps poison right. Host memory goes by the
/// host's back end; memory of the worker's device, once init_ccl has given it one, by that device's. After init_ccl of a host's
/// ccl, memory of devices goes by way of the host's.
/// Used by the worker's thread only.
class Collectives {
 public:
  Collectives(DataPlane plane, Agreement& agreement) : plane_(std::move(plane)), agreement_(agreement) {}

  const DataPlane& data_plane() const { return plane_; }

  struct Members {
    CommKey key = 0;
    std::vector<int> workers;  // by rank
    int rank = 0;
    std::shared_ptr<void> handle = nullptr;  // of a part: as long as the worker has one on it
  };

  static const Tensor kNone;  ///< stands for an operand that a member does not have
  /// What one member asks for.
  struct Request {
    CollectiveOp op;
    const Tensor *src = &kNone, *dst = &kNone;  // the caller's
    ReduceOp reduce = ReduceOp::kSum;
    int root = 0;
    std::vector<int64_t> counts = {};
    std::vector<int64_t> dst_counts = {};  // kAllToAllV; `counts` are src's
    const ReadSources* read = nullptr;     // kExchange
  };
  void run(const Members& comm, Request request);
  /// A small collective that has run before: again, with the same operands, it looks at nothing but the other members.
  struct Planned {
    uint64_t generation = 0;  ///< 0: none
    CommKey key = 0;
    int rank = 0;
    std::vector<int> workers = {};
    ReduceOp reduce = ReduceOp::kSum;
    Buffer src = {}, dst = {};
    Communicator* communicator = nullptr;
    Arrival mine = {};  ///< its memory is used again
    bool is(const Members& comm, const Request& request) const;
  };
  bool run(Planned& planned, const Tensor& dst);  ///< false: the plan is out of date
  /// As long as this lives, the first collective that runs is planned there, if it can be.
  class PlansInto {
   public:
    PlansInto(Collectives& collectives, Planned& place) : collectives_(collectives) { collectives.plans_into_ = &place; }
    PlansInto(const PlansInto&) = delete;
    PlansInto& operator=(const PlansInto&) = delete;
    ~PlansInto() { collectives_.plans_into_ = nullptr; }

   private:
    Collectives& collectives_;
  };
  /// Each member reads what it wants of the others' src, in host memory; a member may have none. False: nobody has read, since
  /// one can't reach the memory of another. The same on all members.
  bool exchange(const Members& comm, const Tensor& src, const ReadSources& read);
  Members split(const Members& comm, int color, int key);
  /// The communicator of these workers in this order: on each of them the same, whenever it is named.
  /// `what_else`: tells it from others of the same workers.  @throws UsageError  another list has the same key (of some 10^10
  /// that begin with one worker)
  Members named(CommKind kind, Members members, uint64_t what_else = 0);
  /// MPI_Comm* of these members for messages of the user's own, made on first use: then collective.  @throws UsageError  no MPI
  void* user_comm(const Members& comm);

  /// Drops all communicators; the next collective makes new ones, of a device here and now. Collective over all workers of the
  /// session. `device_id`: this worker's, of a type; asked if the ccl is one of devices. "auto": GPUs if all workers have their
  /// own and what it takes, else the host.
  void init_ccl(std::string_view ccl, const Members& world, const Members& group,
                const std::function<int32_t(int32_t type)>& device_id);
  Device device() const { return device_; }  ///< cpu(0), or what init_ccl gave
  std::string_view ccl() const { return device_ccl_ ? device_ccl_->name : host_ccl_; }
  /// Of work that was started and is under way: why it can't complete, or "".
  std::string poll_error();
  bool lose_device(const std::string& why);  ///< aborts its communicators; false: it was lost before
  bool device_is_lost() const { return !device_error_.empty(); }
  /// After a failure that was raised: collectives from command `since` on make new communicators of the device.
  void renew(uint64_t since);
  uint64_t device_since() const { return device_since_; }  ///< the command of init_ccl or renew() for a device; 0: there was none
  void abort() noexcept;                                   ///< ends work that is under way
  void finish_parts();  ///< work of the device's sub-communicators: before end_command().  @throws SystemError
  void end_command();   ///< sub-communicators end with it
  void end_session();

 private:
  void drop_retired() noexcept;
  template <class Which>
  void drop_parts(Which which);
  std::vector<CommKey> unneeded_parts(const Members& comm) const;
  Arrival& arrive(const Members& comm, const CollectiveId& id, const Signature& signature, const std::vector<int64_t>& counts);
  void offer(const Ccl& ccl, const Members& comm, Arrival& mine, const Request& request, Buffer src, Buffer dst) const;
  void check_tensor(CollectiveOp op, const char* role, const Tensor& tensor) const;
  void check_source(CollectiveOp op, const Tensor& src) const;
  Signature check(const Members& comm, Request& request) const;
  struct Operands {
    Signature signature;  ///< what all must agree on
    Buffer src, dst;      ///< the memory that moves
  };
  struct Temporaries {  ///< of a request, as long as it runs
    Tensor copy, host_src, host_dst;
  };
  Operands operands(const Members& comm, Request& request, bool is_staged, std::optional<Temporaries>& temporaries) const;
  struct Progress {
    CollectiveId id;
    bool has_arrived = false, has_agreed = false, on_device = false;
  };
  [[noreturn]] void fail(CollectiveOp op, const Tensor& dst, const Progress& progress);
  Planned& place_of(const Request& request);
  void plan(const Members& comm, const Request& request, const Operands& operands, Communicator& communicator, Planned& place,
            bool at_once) noexcept;
  Communicator* prepare(const Members& comm, const Tensor& dst);
  bool may_start_alone(const Request& request) const;
  void take(const Tensor& from, const Tensor& dst);
  struct HostComm {
    const Ccl* ccl = nullptr;
    std::unique_ptr<Communicator> made = nullptr;  // by the first collective that moves something
    Communicator& communicator(const Making& making) {
      if (!made) made = ccl->make(making);
      return *made;
    }
  };
  HostComm& host_comm(const Members& comm);
  Communicator& device_comm(const Members& comm);
  std::string why_lost() const;
  using Comms = std::map<CommKey, std::unique_ptr<Communicator>>;  // ordered: freed in the same order everywhere
  static void abort_all(std::initializer_list<const Comms*> all) noexcept;
  const Ccl* choose_gpus(const Members& world, const std::function<int32_t(int32_t type)>& device_id);

  DataPlane plane_;
  Agreement& agreement_;
  Arrival mine_;                     // its memory is used again
  std::array<Planned, 16> planned_;  // by their operands
  Planned* plans_into_ = nullptr;    // the next one
  uint64_t generation_ = 1;          // of the host's communicators
  std::string host_ccl_ = "auto";
  const Ccl* device_ccl_ = nullptr;
  Device device_ = cpu();
  bool stages_ = false;  // operands on devices go by the host's memory
  uint64_t device_since_ = 0;
  std::string device_error_;  // its communicators are aborted since
  std::map<CommKey, HostComm> host_comms_;
  Comms device_comms_, retired_;  // by renew()
  std::map<CommKey, std::shared_ptr<void>> user_comms_;
  std::map<CommKey, std::vector<int>> named_;  // to tell lists apart
  struct Part {
    std::vector<int> workers;
    std::weak_ptr<void> handle;   // gone: this worker needs it no more
    bool is_told = false;         // to the others, that it does not
    std::set<int> unneeded = {};  // by these workers, as they have told
  };
  std::map<CommKey, Part> parts_;  // split off in this command
};

}  // namespace tutti::detail

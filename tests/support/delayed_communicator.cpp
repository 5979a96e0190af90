#include "support/delayed_communicator.h"

#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>

#include "collective/ccl.h"
#include "collective/reduce.h"
#include "support/delayed_device.h"
#include "tutti/error.h"

namespace tutti_test::delayed {
namespace {

using namespace tutti;
using namespace tutti::detail;

struct Injected {
  std::mutex mutex;
  std::string failure, loss;
} injected;

struct Freed {
  std::mutex mutex;
  std::map<int, std::vector<const void*>> by_worker;
  std::vector<std::shared_ptr<void>> kept;  // so that no two are at one address
} freed;

/// What the members of one communicator share.
struct Meeting {
  explicit Meeting(size_t members) : size(members) {}
  const size_t size;
  std::mutex mutex;
  std::condition_variable changed;
  struct Round {
    std::vector<Buffer> src, dst;
    std::vector<std::vector<int64_t>> counts;
    size_t arrived = 0, computed = 0, left = 0;
    std::string failure, loss;
  };
  std::map<uint64_t, Round> rounds;
  std::string error;  // of a round that is lost
  bool is_aborted = false;
};

std::vector<char> bytes_of(Buffer buffer) { return std::vector<char>(static_cast<size_t>(buffer.size_bytes())); }

/// The result of one member, out of what all have.
std::vector<char> result(const Operation& o, const Meeting::Round& round) {
  const auto size = static_cast<int64_t>(round.src.size());
  std::vector<char> out = bytes_of(o.dst);
  const auto item = (o.dst.data ? o.dst : o.src).dtype.size_bytes();
  const auto take = [&](int64_t at, int64_t from, int64_t begin, int64_t count) {
    if (count > 0)
      std::memcpy(out.data() + at * item, round.src[static_cast<size_t>(from)].at(begin), static_cast<size_t>(count * item));
  };
  const auto before = [&](int64_t rank) { return std::accumulate(o.counts.begin(), o.counts.begin() + rank, int64_t{0}); };
  switch (o.op) {
    case CollectiveOp::kAllreduce:
    case CollectiveOp::kReduceScatter: {
      const int64_t begin = o.op == CollectiveOp::kReduceScatter ? o.rank * o.dst.count : 0;
      std::vector<const char*> from;
      for (const Buffer& src : round.src) from.push_back(src.at(begin));
      char* const to[] = {out.data()};
      if (o.dst.count > 0) reduce(o.reduce, o.dst.dtype, from, to, o.dst.count);
      break;
    }
    case CollectiveOp::kAllgather:
      for (int64_t r = 0; r < size; ++r) take(r * o.src.count, r, 0, o.src.count);
      break;
    case CollectiveOp::kBroadcast: take(0, o.root, 0, o.dst.count); break;
    case CollectiveOp::kScatter: take(0, o.root, before(o.rank), o.dst.count); break;
    case CollectiveOp::kGather:
      for (int64_t r = 0; o.rank == o.root && r < size; ++r) take(before(r), r, 0, o.counts[static_cast<size_t>(r)]);
      break;
    case CollectiveOp::kAllToAll: {
      const int64_t part = o.src.count / size;
      for (int64_t r = 0; r < size; ++r) take(r * part, r, o.rank * part, part);
      break;
    }
    case CollectiveOp::kAllToAllV:
      for (int64_t r = 0, at = 0; r < size; at += o.counts[static_cast<size_t>(size + r++)]) {
        const auto& theirs = round.counts[static_cast<size_t>(r)];
        take(at, r, std::accumulate(theirs.begin(), theirs.begin() + o.rank, int64_t{0}),
             o.counts[static_cast<size_t>(size + r)]);
      }
      break;
    case CollectiveOp::kSendRecv:
      if (o.rank == 1) take(0, 0, 0, o.dst.count);
      break;
    case CollectiveOp::kExchange:
    case CollectiveOp::kBarrier:
    case CollectiveOp::kSplit: break;
  }
  return out;
}

void take_part(Meeting& meeting, uint64_t number, const Operation& o) {
  std::unique_lock lock(meeting.mutex);
  Meeting::Round& round = meeting.rounds[number];
  const auto await = [&](const std::function<bool()>& ready) {
    meeting.changed.wait(lock, [&] { return meeting.is_aborted || ready(); });
    if (meeting.is_aborted) throw SystemError("the communicator was aborted: " + meeting.error);
  };
  round.src.resize(meeting.size);
  round.dst.resize(meeting.size);
  round.counts.resize(meeting.size);
  round.counts[static_cast<size_t>(o.rank)] = o.counts;
  round.src[static_cast<size_t>(o.rank)] = o.src;
  round.dst[static_cast<size_t>(o.rank)] = o.dst;
  if (++round.arrived == meeting.size) {
    const std::lock_guard injection(injected.mutex);
    round.failure = std::exchange(injected.failure, {});
    round.loss = std::exchange(injected.loss, {});
    meeting.error += round.loss;
  }
  meeting.changed.notify_all();
  await([&] { return round.arrived == meeting.size && round.loss.empty(); });
  std::vector<char> mine;
  const std::string failure = round.failure;
  if (failure.empty()) {
    lock.unlock();
    mine = result(o, round);
    lock.lock();
  }
  ++round.computed;
  meeting.changed.notify_all();
  await([&] { return round.computed == meeting.size; });  // src may be somebody's dst
  if (!mine.empty()) std::memcpy(o.dst.data, mine.data(), mine.size());
  if (++round.left == meeting.size) meeting.rounds.erase(number);
  if (!failure.empty()) throw SystemError(failure);
}

class DelayedCommunicator final : public tutti::detail::Communicator {
 public:
  explicit DelayedCommunicator(const Making& making) {
    if (making.device.type != kType) throw SystemError("delayed: made for another device");
    auto* shared = new std::shared_ptr<Meeting>(std::make_shared<Meeting>(making.members.size()));
    std::vector<decltype(shared)> all(making.members.size());
    const auto pass = [&] { making.all_gather(std::as_bytes(std::span(&shared, 1)), std::as_writable_bytes(std::span(all))); };
    pass();
    meeting_ = *all.front();
    pass();  // all have read it
    delete shared;
    worker_ = making.plane.worker;
  }
  ~DelayedCommunicator() override {
    const std::lock_guard lock(freed.mutex);
    freed.by_worker[worker_].push_back(meeting_.get());
    freed.kept.push_back(meeting_);
  }

  void start(const Operation& operation) override {
    if (operation.device.type != kType || !operation.stream) throw SystemError("delayed: no stream of this device");
    Operation mine = operation;
    if (mine.src.data) mine.src.data = reach(mine.src.data);
    if (mine.dst.data) mine.dst.data = reach(mine.dst.data);
    mine.members = nullptr;  // they end when we return
    enqueue(operation.stream, [meeting = meeting_, number = ++started_, mine] { take_part(*meeting, number, mine); });
  }
  std::string poll_error() override {
    const std::lock_guard lock(meeting_->mutex);
    return meeting_->error;
  }
  void abort() noexcept override {
    const std::lock_guard lock(meeting_->mutex);
    meeting_->is_aborted = true;
    meeting_->changed.notify_all();
  }

 private:
  std::shared_ptr<Meeting> meeting_;
  int worker_ = 0;
  uint64_t started_ = 0;
};

}  // namespace

void add_communicator() {
  add_ccl({.name = "delayed",
           .device_type = kType,
           .make = [](const Making& making) -> std::unique_ptr<tutti::detail::Communicator> {
             return std::make_unique<DelayedCommunicator>(making);
           },
           .starts_alone = true});
}

std::vector<const void*> freed_by(int worker) {
  const std::lock_guard lock(freed.mutex);
  return freed.by_worker[worker];
}

void fail_next_collective(const std::string& why) {
  const std::lock_guard lock(injected.mutex);
  injected.failure = why;
}
void lose_next_collective(const std::string& why) {
  const std::lock_guard lock(injected.mutex);
  injected.loss = why;
}

}  // namespace tutti_test::delayed

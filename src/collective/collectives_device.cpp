// What is more to a collective whose operands lie on a device.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "collective/collectives.h"
#include "core/log.h"
#include "core/settings.h"
#include "device/cuda/driver.h"
#include "device/devices.h"
#include "device/streams.h"

namespace tutti::detail {

/// What the host's back end has written, to the device. The collective is over: a failure is this member's own.
void Collectives::take(const Tensor& from, const Tensor& dst) try { dst.copy_from(from); } catch (const TransportError&) {
  throw;
} catch (const std::exception&) {
  dst.poison({agreement_.here().worker, agreement_.here().seq});
  throw;
}

/// To make a communicator is collective, too.
Communicator* Collectives::prepare(const Members& comm, const Tensor& dst) try {
  return &device_comm(comm);
} catch (const ConsequenceError& error) {
  dst.poison({error.origin.worker, error.origin.seq});
  throw;
} catch (const TransportError&) {
  throw;
} catch (const std::exception&) {
  dst.poison({agreement_.here().worker, agreement_.here().seq});
  throw;
}

/// All that must be equal is in the signature: other members' counts need not be known.
bool Collectives::may_start_alone(const Request& request) const {
  return device_ccl_->starts_alone && request.op != CollectiveOp::kBarrier && !has_parts(request.op) &&
         request.op != CollectiveOp::kAllToAllV;
}

/// Collective where it is made: the members pass messages by their host memory.
Communicator& Collectives::device_comm(const Members& comm) {
  if (device_ccl_->pairs_by_world && kind(comm.key) == CommKind::kPair) {
    const auto world = device_comms_.find(world_key());
    if (world != device_comms_.end() && world->second) return *world->second;
    return device_comm(named(CommKind::kNamed, comm));  // since renew(); only these two are here
  }
  auto& made = device_comms_[comm.key];
  if (made) return *made;
  const auto all_gather = [&](std::span<const std::byte> mine, std::span<std::byte> all) {
    const auto src = Tensor::wrap(const_cast<std::byte*>(mine.data()), {std::ssize(mine)}, kUInt8);
    const auto dst = Tensor::wrap(all.data(), {std::ssize(all)}, kUInt8);
    run(comm, {.op = CollectiveOp::kAllgather, .src = &src, .dst = &dst});
  };
  // to make one, and to abort one, may wait inside NCCL for work of the device, where nobody hears of a failure
  try {
    current_streams().finish();
    if (!device_error_.empty()) throw UsageError(why_lost());
  } catch (const TransportError&) {
    throw;
  } catch (const std::exception&) {
    agreement_.decline(agreement_.next_id(comm.key));  // the barrier
    throw;
  }
  run(comm, {.op = CollectiveOp::kBarrier});  // all or none
  if (const auto old = retired_.extract(comm.key)) old.mapped()->abort();
  return *(made = device_ccl_->make({plane_, comm.workers, comm.key, device_, all_gather}));
}

/// All at the same time: NCCL frees memory of the device as it aborts one, which waits for the work of the others there.
void Collectives::abort_all(std::initializer_list<const Comms*> all) noexcept {
  std::vector<std::thread> threads;
  std::vector<Communicator*> left;
  for (const Comms* comms : all)
    for (const auto& [key, made] : *comms) try {
        left.push_back(made.get());
        if (made) threads.emplace_back([one = made.get()] { one->abort(); });
        left.pop_back();
      } catch (const std::exception&) {  // no thread can be had
      }
  for (Communicator* one : left) one->abort();
  for (std::thread& thread : threads) thread.join();
}

namespace {

/// What a worker could use of a ccl of GPUs.
enum Choice : int64_t { kNoDriver = 0, kLacksSomething = -1, kBadNumbers = -2 };  // else a hash of the GPU

struct Chooses {
  int64_t choice = kNoDriver;
  std::string why = {};                // not
  std::exception_ptr error = nullptr;  // of kBadNumbers
};

Chooses look(const Ccl& row, const std::function<int32_t(int32_t type)>& device_id, int rank) {
  try {
    device_api({row.device_type, 0});
    row.check(row.device_type);
    const Device device{row.device_type, device_id(row.device_type)};
    const auto count = std::ssize(device_api(device).pci_ids());
    if (device.id >= count) return {kLacksSomething, fmt::format("no {}: there are {}", to_string(device), count)};
    const std::string name = physical_name(device);
    return {name.empty() ? rank + 1 : static_cast<int64_t>(std::hash<std::string>()(name) >> 1 | 1)};
  } catch (const SystemError& error) {
    return {gpu::Driver::is_installed(row.device_type) ? kLacksSomething : kNoDriver, error.what()};
  } catch (const UsageError& error) {
    return {kBadNumbers, error.what(), std::current_exception()};
  }
}

}  // namespace

/// Collective, and the same on all workers.
const Ccl* Collectives::choose_gpus(const Members& world, const std::function<int32_t(int32_t type)>& device_id) {
  const auto rows = ccls_of_gpus();
  const size_t size = world.workers.size();
  std::vector<Chooses> own;
  std::vector<int64_t> mine;
  for (const Ccl& row : rows) {
    own.push_back(look(row, device_id, world.rank));
    mine.push_back(own.back().choice);
  }
  mine.push_back(settings().allow_shared_device);  // where all say so
  std::vector<int64_t> all(size * mine.size());
  const auto src = Tensor::wrap(mine.data(), {std::ssize(mine)}, kInt64),
             dst = Tensor::wrap(all.data(), {std::ssize(all)}, kInt64);
  run(world, {.op = CollectiveOp::kAllgather, .src = &src, .dst = &dst});
  const auto told = [&](size_t i) {
    std::vector<int64_t> values;
    for (size_t r = 0; r < size; ++r) values.push_back(all[r * mine.size() + i]);
    return values;
  };
  const bool may_share = std::ranges::all_of(told(rows.size()), [](int64_t one) { return one != 0; });
  std::string why_not;  // what this worker has to say, should the host be taken
  for (size_t i = 0; i < rows.size(); ++i) {
    std::vector<int64_t> choices = told(i);
    const auto lacks = [](int64_t choice) { return choice == kNoDriver || choice == kLacksSomething; };
    if (std::ranges::any_of(choices, lacks)) {
      // of some that lack the same thing the first one with a driver speaks; where others have all, each of them
      const bool some_can = !std::ranges::all_of(choices, lacks);
      const bool is_first = std::ranges::find(choices, kLacksSomething) - choices.begin() == world.rank;
      if (lacks(mine[i]) && (some_can || is_first))
        why_not += fmt::format("; {}: worker {}: {}", rows[i].name, plane_.worker, own[i].why);
      continue;
    }
    if (own[i].error) std::rethrow_exception(own[i].error);
    if (std::ranges::find(choices, kBadNumbers) != choices.end()) return &rows[i];  // to fail with those that have thrown
    std::ranges::sort(choices);
    if (may_share || std::ranges::adjacent_find(choices) == choices.end()) {
      if (world.rank == 0) log(LogLevel::kInfo, "init_ccl: 'auto' takes '{}'", rows[i].name);
      return &rows[i];
    }
    if (world.rank == 0) why_not += fmt::format("; {}: some workers would share a GPU", rows[i].name);
  }
  if (why_not.empty() && world.rank == 0) log(LogLevel::kInfo, "init_ccl: 'auto' takes the host's memory");
  if (!why_not.empty()) log(LogLevel::kWarn, "init_ccl: 'auto' takes the host's memory{}", why_not);
  return nullptr;
}

std::string Collectives::why_lost() const {
  return fmt::format(
      "the communicators of ccl '{}' were aborted ({}); the session makes new ones when this error has been raised",
      device_ccl_->name, device_error_);
}

std::string Collectives::poll_error() {
  std::string why;
  for (const auto& [key, made] : device_comms_)
    if (made && device_error_.empty() && why.empty()) why = made->poll_error();
  return why;
}

bool Collectives::lose_device(const std::string& why) {
  if (!device_error_.empty()) return false;
  device_error_ = why;
  abort_all({&device_comms_});
  return true;
}

/// Ours are complete, but other members may still be in theirs: those are dropped when all members make the next one.
void Collectives::renew(uint64_t since) {
  for (auto& [key, made] : device_comms_)
    if (made && device_error_.empty()) retired_.insert_or_assign(key, std::move(made));
  device_comms_.clear();
  device_error_.clear();
  device_since_ = since;
  agreement_.restart_announcements(since);
}

void Collectives::abort() noexcept { abort_all({&device_comms_, &retired_}); }

}  // namespace tutti::detail

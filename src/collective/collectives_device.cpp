// What is more to a collective whose operands lie on a device.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "collective/collectives.h"
#include "core/log.h"
#include "core/settings.h"
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
  run(comm, {.op = CollectiveOp::kBarrier});  // all or none
  if (const auto old = retired_.extract(comm.key)) old.mapped()->abort();
  return *(made = device_ccl_->make({plane_, comm.workers, comm.key, device_, all_gather}));
}

/// All at the same time: NCCL frees memory of the device as it aborts one, which waits for the work of the others there.
void Collectives::abort_all(std::initializer_list<const Comms*> all) noexcept {
  std::vector<std::thread> threads;
  for (const Comms* comms : all)
    for (const auto& [key, made] : *comms) try {
        if (made) threads.emplace_back([&made] { made->abort(); });
      } catch (const std::exception&) {  // no thread can be had
        made->abort();
      }
  for (std::thread& thread : threads) thread.join();
}

/// Collective, and the same on all workers.
const Ccl* Collectives::choose_gpus(const Members& world, const std::function<int32_t(int32_t type)>& device_id) {
  const auto rows = ccls_of_gpus();
  const size_t size = world.workers.size();
  std::vector<int64_t> mine(rows.size()), all(size * rows.size());  // a hash of the GPU; 0: none can be used
  std::vector<std::string> reasons(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) try {
      device_api({rows[i].device_type, 0});
      rows[i].check(rows[i].device_type);
      const Device device{rows[i].device_type, device_id(rows[i].device_type)};
      const std::string name = physical_name(device);
      mine[i] = name.empty() ? world.rank + 1 : static_cast<int64_t>(std::hash<std::string>()(name) | 1);
    } catch (const SystemError& error) {
      reasons[i] = error.what();
    }
  const auto src = Tensor::wrap(mine.data(), {std::ssize(mine)}, kInt64),
             dst = Tensor::wrap(all.data(), {std::ssize(all)}, kInt64);
  run(world, {.op = CollectiveOp::kAllgather, .src = &src, .dst = &dst});
  for (size_t i = 0; i < rows.size(); ++i) {
    std::vector<int64_t> gpus;
    for (size_t r = 0; r < size; ++r) gpus.push_back(all[r * rows.size() + i]);
    const auto lacking = std::ranges::find(gpus, 0);
    const bool some_can = std::ranges::any_of(gpus, [](int64_t gpu) { return gpu != 0; });
    // what a worker lacks is for its user to mend where it has a driver, or others have all
    if (!reasons[i].empty() && (some_can || (world.rank == 0 && find_device_api({rows[i].device_type, 0}))))
      log(LogLevel::kWarn, "init_ccl: 'auto' takes no GPUs: worker {}: {}", plane_.worker, reasons[i]);
    if (lacking != gpus.end()) continue;
    std::ranges::sort(gpus);
    if (settings().allow_shared_device || std::ranges::adjacent_find(gpus) == gpus.end()) {
      if (world.rank == 0) log(LogLevel::kInfo, "init_ccl: 'auto' takes '{}'", rows[i].name);
      return &rows[i];
    }
    if (world.rank == 0)
      log(LogLevel::kWarn, "init_ccl: 'auto' takes no GPUs: some workers would share one ('{}')", rows[i].name);
  }
  return nullptr;
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

#include "bench/raw_nccl.h"

#include <chrono>
#include <thread>

#include "collective/nccl/types.h"
#include "core/settings.h"

namespace tutti::bench {
using namespace detail;
using namespace detail::nccl;

RawNccl::RawNccl(MPI_Comm members, Device device) : library_(Library::of(device.type)), device_(device) {
  MPI_Comm_rank(members, &rank_);
  MPI_Comm_size(members, &size_);
  struct {
    Status status = kSuccess;
    UniqueId id{};
  } first;  // all begin, or none
  if (rank_ == 0) first.status = f().get_unique_id.call(&first.id);
  MPI_Bcast(&first, sizeof first, MPI_BYTE, 0, members);
  expect(first.status, f().get_unique_id.name);
  Config config;
  config.blocking = 0;
  if (settings().allow_shared_device) config.max_ctas = 4;  // as tutti's own
  expect(f().init_rank.call(&comm_, size_, first.id, rank_, &config), f().init_rank.name);
}

const RawNccl& RawNccl::of(MPI_Comm members, Device device) {
  static const auto* made = new RawNccl(members, device);
  return *made;
}

/// A communicator that does not block ends its calls later.
void RawNccl::expect(Status status, const char* what) const {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(settings().timeout_s);
  while (status == kInProgress && comm_ && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
    if (const Status failed = f().async_error.call(comm_, &status); failed != kSuccess) status = failed;
  }
  if (status != kSuccess) throw SystemError(library_.describe(what, status, comm_));
}

bool RawNccl::has(const std::string& operation, DType dtype) const {
  if (operation == "scatter") return f().scatter.call;
  if (operation == "gather") return f().gather.call;
  if (operation == "all_to_all") return f().all_to_all.call;
  return (operation != "allreduce" && operation != "reduce_scatter") || elements(dtype);
}

void RawNccl::run(const std::string& operation, const Tensor& src, const Tensor& dst, ReduceOp op, int root) const {
  const auto is = [&](const char* name) { return operation == name; };
  const auto bytes = [](const Tensor& tensor) { return static_cast<size_t>(tensor.size_bytes()); };
  const auto ranks = static_cast<size_t>(size_);
  nccl::Stream stream = tutti::stream(device_);
  Status status = kSuccess;
  if (is("allreduce") || is("reduce_scatter")) {
    const Elements of = elements(dst.dtype()).value();
    const auto count = static_cast<size_t>(dst.element_count() * of.each);
    status = (is("allreduce") ? f().all_reduce : f().reduce_scatter)
                 .call(src.data(), dst.data(), count, of.type, op_of(op), comm_, stream);
  } else if (is("allgather")) {
    status = f().all_gather.call(src.data(), dst.data(), bytes(src), Type::kUInt8, comm_, stream);
  } else if (is("broadcast")) {
    status = f().broadcast.call(src.data(), dst.data(), bytes(dst), Type::kUInt8, root, comm_, stream);
  } else if (is("scatter")) {
    status = f().scatter.call(src.data(), dst.data(), bytes(dst), Type::kUInt8, root, comm_, stream);
  } else if (is("gather")) {
    status = f().gather.call(src.data(), dst.data(), bytes(src), Type::kUInt8, root, comm_, stream);
  } else if (is("all_to_all")) {
    status = f().all_to_all.call(src.data(), dst.data(), bytes(src) / ranks, Type::kUInt8, comm_, stream);
  } else if (rank_ == 0) {
    status = f().send.call(src.data(), bytes(src), Type::kUInt8, 1, comm_, stream);
  } else if (rank_ == 1) {
    status = f().recv.call(dst.data(), bytes(dst), Type::kUInt8, 0, comm_, stream);
  }
  expect(status, operation.c_str());
}

}  // namespace tutti::bench

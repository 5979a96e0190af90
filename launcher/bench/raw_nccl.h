#pragma once

#include <mpi.h>

#include <string>

#include "collective/nccl/library.h"
#include "tutti/tutti.h"

namespace tutti::bench {

/// NCCL's own calls, as a program without tutti would make them: by a communicator of their own, on the worker's stream.
class RawNccl {
 public:
  /// This process's: made by the first call, and never freed. Collective.  @throws SystemError
  static const RawNccl& of(MPI_Comm members, Device device);
  bool has(const std::string& operation, DType dtype) const;
  void run(const std::string& operation, const Tensor& src, const Tensor& dst, ReduceOp op, int root) const;

 private:
  RawNccl(MPI_Comm members, Device device);
  const detail::nccl::Functions& f() const { return library_.functions; }
  void expect(detail::nccl::Status status, const char* what) const;

  const detail::nccl::Library& library_;
  const Device device_;
  int rank_ = 0, size_ = 1;
  detail::nccl::Comm comm_ = nullptr;
};

}  // namespace tutti::bench

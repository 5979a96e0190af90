#pragma once

#include "collective/mpi/mpi_handles.h"
#include "tutti/dtype.h"
#include "tutti/worker.h"

namespace tutti {

/// How one element type travels and is reduced by MPI. float16 and bfloat16 have ops of our own, which widen to float32
/// and round to nearest even after every step.
class MpiElement {
 public:
  explicit MpiElement(DType dtype);
  MPI_Datatype type() const { return own_type_ ? own_type_.get() : type_; }
  /// avg is a sum here: the caller divides.
  MPI_Op op(ReduceOp op);

 private:
  DType dtype_;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
  MpiType own_type_;
  MpiOp own_op_;
};

}  // namespace tutti

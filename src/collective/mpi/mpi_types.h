#pragma once

#include "collective/mpi/mpi_handles.h"
#include "tutti/dtype.h"
#include "tutti/worker.h"

namespace tutti::detail {

/// How one element type travels and is reduced by MPI. Two kinds of ops are our own. Those of float16 and bfloat16 widen to
/// float32 and round to nearest even after every step. min and max of floats treat NaN as min_max.h says; MPI leaves it open.
class MpiElement {
 public:
  explicit MpiElement(DType dtype);
  MPI_Datatype type() const { return own_type_ ? own_type_.get() : type_; }
  /// avg is a sum here: the caller divides.
  MPI_Op op(ReduceOp op) const;

 private:
  DType dtype_;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
  MpiType own_type_;
};

}  // namespace tutti::detail

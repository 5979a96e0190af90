#include "collective/mpi/mpi_types.h"

#include "collective/reduce.h"

namespace tutti::detail {
namespace {

struct MpiType {
  DType dtype;
  MPI_Datatype type;
};

MPI_Datatype builtin_type(DType dtype) {
  const MpiType rows[] = {
      {kInt8, MPI_INT8_T},
      {kInt16, MPI_INT16_T},
      {kInt32, MPI_INT32_T},
      {kInt64, MPI_INT64_T},
      {kUInt8, MPI_UINT8_T},
      {kUInt16, MPI_UINT16_T},
      {kUInt32, MPI_UINT32_T},
      {kUInt64, MPI_UINT64_T},
      {kFloat32, MPI_FLOAT},
      {kFloat64, MPI_DOUBLE},
      {kBool, MPI_UINT8_T},
      {kComplex64, MPI_C_FLOAT_COMPLEX},
      {kComplex128, MPI_C_DOUBLE_COMPLEX},
  };
  for (const MpiType& row : rows)
    if (row.dtype == dtype) return row.type;
  return MPI_DATATYPE_NULL;
}

template <DType kDType, ReduceOp kOp>
void reduce_own(void* in, void* inout, int* count, MPI_Datatype*) {
  char* const dst[] = {static_cast<char*>(inout)};
  const char* const sources[] = {static_cast<const char*>(in), dst[0]};
  reduce(kOp, kDType, sources, dst, *count);
}

/// Made at its first use, for the life of the process: to make one takes longer than a small reduction.
template <DType kDType, ReduceOp kOp>
MPI_Op own_op() {
  static const MPI_Op op = [] {
    MPI_Op made = MPI_OP_NULL;
    check_mpi(MPI_Op_create(reduce_own<kDType, kOp>, 1, &made), "MPI_Op_create");
    return made;
  }();
  return op;
}

template <DType kDType>
MPI_Op own_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kProd: return own_op<kDType, ReduceOp::kProd>();
    case ReduceOp::kMin: return own_op<kDType, ReduceOp::kMin>();
    case ReduceOp::kMax: return own_op<kDType, ReduceOp::kMax>();
    default: return own_op<kDType, ReduceOp::kSum>();
  }
}

MPI_Op builtin_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kProd: return MPI_PROD;
    case ReduceOp::kMin: return MPI_MIN;
    case ReduceOp::kMax: return MPI_MAX;
    default: return MPI_SUM;
  }
}

}  // namespace

MpiElement::MpiElement(DType dtype) : dtype_(dtype), type_(builtin_type(dtype)) {
  if (type_ != MPI_DATATYPE_NULL) return;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  check_mpi(MPI_Type_contiguous(static_cast<int>(dtype.size_bytes()), MPI_BYTE, &type), "MPI_Type_contiguous");
  own_type_.reset(type);
  check_mpi(MPI_Type_commit(&type), "MPI_Type_commit");
}

MPI_Op MpiElement::op(ReduceOp op) const {
  if (dtype_ == kFloat16) return own_op<kFloat16>(op);
  if (dtype_ == kBFloat16) return own_op<kBFloat16>(op);
  if (op != ReduceOp::kMin && op != ReduceOp::kMax) return builtin_op(op);
  if (dtype_ == kFloat32) return own_op<kFloat32>(op);
  if (dtype_ == kFloat64) return own_op<kFloat64>(op);
  return builtin_op(op);
}

}  // namespace tutti::detail

#include "collective/mpi/mpi_types.h"

#include "collective/reduce.h"

namespace tutti {
namespace {

struct MpiType {
  DType dtype;
  MPI_Datatype type;
};

MPI_Datatype builtin_type(DType dtype) {
  const MpiType rows[] = {
      {kInt8, MPI_INT8_T},     {kInt16, MPI_INT16_T},   {kInt32, MPI_INT32_T},   {kInt64, MPI_INT64_T},
      {kUInt8, MPI_UINT8_T},   {kUInt16, MPI_UINT16_T}, {kUInt32, MPI_UINT32_T}, {kUInt64, MPI_UINT64_T},
      {kFloat32, MPI_FLOAT},   {kFloat64, MPI_DOUBLE},  {kBool, MPI_UINT8_T},    {kComplex64, MPI_C_FLOAT_COMPLEX},
      {kComplex128, MPI_C_DOUBLE_COMPLEX},
  };
  for (const MpiType& row : rows)
    if (row.dtype == dtype) return row.type;
  return MPI_DATATYPE_NULL;
}

constexpr DType kHalfTypes[] = {kFloat16, kBFloat16};

template <int kType, ReduceOp kOp>
void reduce_half(void* in, void* inout, int* count, MPI_Datatype*) {
  char* const dst[] = {static_cast<char*>(inout)};
  const char* const sources[] = {static_cast<const char*>(in), dst[0]};
  reduce(kOp, kHalfTypes[kType], sources, dst, *count);
}

template <int kType>
MPI_User_function* half_function(ReduceOp op) {
  switch (op) {
    case ReduceOp::kProd: return reduce_half<kType, ReduceOp::kProd>;
    case ReduceOp::kMin: return reduce_half<kType, ReduceOp::kMin>;
    case ReduceOp::kMax: return reduce_half<kType, ReduceOp::kMax>;
    default: return reduce_half<kType, ReduceOp::kSum>;
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

MPI_Op MpiElement::op(ReduceOp op) {
  if (dtype_ == kFloat16 || dtype_ == kBFloat16) {
    MPI_Op made = MPI_OP_NULL;
    check_mpi(MPI_Op_create(dtype_ == kFloat16 ? half_function<0>(op) : half_function<1>(op), 1, &made), "MPI_Op_create");
    own_op_.reset(made);
    return made;
  }
  switch (op) {
    case ReduceOp::kProd: return MPI_PROD;
    case ReduceOp::kMin: return MPI_MIN;
    case ReduceOp::kMax: return MPI_MAX;
    default: return MPI_SUM;
  }
}

}  // namespace tutti

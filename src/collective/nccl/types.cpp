#include "collective/nccl/types.h"

#include <algorithm>
#include <utility>

#include "tutti/error.h"

namespace tutti::detail::nccl {

std::optional<Elements> elements(DType dtype) {
  constexpr std::pair<DType, Elements> kAll[] = {{kInt8, {Type::kInt8}},
                                                 {kUInt8, {Type::kUInt8}},
                                                 {kInt32, {Type::kInt32}},
                                                 {kUInt32, {Type::kUInt32}},
                                                 {kInt64, {Type::kInt64}},
                                                 {kUInt64, {Type::kUInt64}},
                                                 {kFloat16, {Type::kFloat16}},
                                                 {kFloat32, {Type::kFloat32}},
                                                 {kFloat64, {Type::kFloat64}},
                                                 {kBool, {Type::kUInt8}},
                                                 {kBFloat16, {Type::kBFloat16}},
                                                 {kComplex64, {Type::kFloat32, 2}},
                                                 {kComplex128, {Type::kFloat64, 2}}};
  const auto* found = std::ranges::find(kAll, dtype, [](const auto& row) { return row.first; });
  return found == std::end(kAll) ? std::nullopt : std::optional(found->second);
}

Op op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return Op::kSum;
    case ReduceOp::kProd: return Op::kProd;
    case ReduceOp::kMin: return Op::kMin;
    case ReduceOp::kMax: return Op::kMax;
    case ReduceOp::kAvg: return Op::kAvg;
  }
  throw UsageError("no such reduction");
}

}  // namespace tutti::detail::nccl

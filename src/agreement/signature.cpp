#include "agreement/signature.h"

#include <fmt/format.h>

namespace tutti::detail {

const char* to_string(CollectiveOp op) {
  constexpr const char* kNames[] = {
      "allreduce", "reduce_scatter",         "allgather", "broadcast", "scatter", "gather", "all_to_all", "send/recv", "barrier",
      "split",     "all_to_all with counts", "exchange"};
  return kNames[static_cast<int>(op)];
}

std::string describe(const Signature& s) {
  std::string text = to_string(s.op);
  if (s.op == CollectiveOp::kAllreduce || s.op == CollectiveOp::kReduceScatter) text += " " + to_string(s.reduce);
  if (has_operands(s.op)) text += fmt::format(" of {} {}", s.count, to_string(s.dtype));
  if (s.op == CollectiveOp::kBroadcast || has_parts(s.op)) text += fmt::format(" root {}", s.root);
  return text;
}

}  // namespace tutti::detail

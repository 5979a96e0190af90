#include "agreement/arrival.h"

#include <fmt/format.h>

namespace tutti::detail {

void encode(Writer& out, const Arrival& a) {
  out.put(a.worker);
  encode(out, a.id);
  out.put(a.signature.op);
  out.put(a.signature.reduce);
  out.put(a.signature.dtype);
  out.put(a.signature.device_type);
  out.put(a.signature.root);
  out.put(a.signature.count);
  out.put(a.step);
  out.put(a.taken);
  out.list(a.counts);
  out.list(a.members);
  out.put(static_cast<uint64_t>(a.left.size()));
  for (const auto& [id, origin] : a.left) {
    encode(out, id);
    encode(out, origin);
  }
}

Arrival decode_arrival(Reader& in) {
  Arrival a;
  a.worker = in.get<int32_t>();
  a.id = decode_collective_id(in);
  a.signature.op = in.get<CollectiveOp>();
  if (a.signature.op > CollectiveOp::kExchange) throw WireError("an unknown collective");
  a.signature.reduce = in.get<ReduceOp>();
  if (a.signature.reduce < ReduceOp::kSum || a.signature.reduce > ReduceOp::kAvg) throw WireError("an unknown op");
  a.signature.dtype = in.get<DType>();
  a.signature.device_type = in.get<int32_t>();
  a.signature.root = in.get<int32_t>();
  a.signature.count = in.get<int64_t>();
  a.step = in.get<uint64_t>();
  a.taken = in.get<uint64_t>();
  a.counts = in.list<int64_t>();
  a.members = in.list<int32_t>();
  for (uint64_t n = in.count(32); n > 0; --n) {
    const CollectiveId id = decode_collective_id(in);
    a.left.emplace_back(id, decode_origin(in));
  }
  return a;
}

std::string describe(const CollectiveId& id, const Signature& s) {
  std::string text = fmt::format("{} #{}", to_string(s.op), id.index);
  switch (kind(id.comm)) {
    case CommKind::kGroup: text += fmt::format(" of group {}", id.comm & 0xffffff); break;
    case CommKind::kPair: text += fmt::format(" from worker {} to {}", id.comm >> 24 & 0xffffff, id.comm & 0xffffff); break;
    case CommKind::kPart:
    case CommKind::kNamed: text += fmt::format(" of a part led by worker {}", first_of(id.comm)); break;
    case CommKind::kWorld: break;
  }
  if (!has_operands(s.op)) return text;
  const bool reduces = s.op == CollectiveOp::kAllreduce || s.op == CollectiveOp::kReduceScatter;
  return text + fmt::format(" ({}{} x {})", reduces ? to_string(s.reduce) + " " : "", to_string(s.dtype), s.count);
}

}  // namespace tutti::detail

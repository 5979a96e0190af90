#include "agreement/collective_id.h"

namespace tutti::detail {

CommKey members_key(CommKind kind, std::span<const int> workers, uint64_t what_else) {
  uint64_t hash = 0xcbf29ce484222325 ^ what_else * 0x9e3779b97f4a7c15;  // FNV-1a, mixed at the end
  for (const int worker : workers)
    for (int shift = 0; shift < 32; shift += 8) hash = (hash ^ (static_cast<uint32_t>(worker) >> shift & 0xff)) * 0x100000001b3;
  hash = (hash ^ hash >> 32) * 0xd6e8feb86659fd93;
  return key_of(kind) | static_cast<CommKey>(workers.front() & 0xfffff) << 36 | hash >> 28;
}

void encode(Writer& out, const CollectiveId& id) {
  out.put(id.comm);
  out.put(id.seq);
  out.put(id.index);
}

CollectiveId decode_collective_id(Reader& in) {
  CollectiveId id;
  id.comm = in.get<CommKey>();
  id.seq = in.get<uint64_t>();
  id.index = in.get<uint32_t>();
  return id;
}

}  // namespace tutti::detail

#include "agreement/collective_id.h"

namespace tutti {

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

}  // namespace tutti

#include "agreement/remote_verdict.h"

#include <string_view>

namespace tutti::detail {

void encode(Writer& out, const RemoteVerdict& v) {
  encode(out, v.id);
  out.put(static_cast<uint8_t>(v.agreed));
  encode(out, v.why.origin.value_or(Origin{}));
  out.text(std::string_view(v.why.message).substr(0, 3000));
  out.put(static_cast<uint64_t>(v.counts.size()));
  for (const auto& counts : v.counts) out.list(counts);
}

RemoteVerdict decode_remote_verdict(Reader& in) {
  RemoteVerdict v;
  v.id = decode_collective_id(in);
  v.agreed = in.get<uint8_t>() != 0;
  if (const Origin origin = decode_origin(in); origin.worker >= 0) v.why.origin = origin;
  v.why.message = in.text();
  for (uint64_t n = in.count(8); n > 0; --n) v.counts.push_back(in.list<int64_t>());
  return v;
}

}  // namespace tutti::detail

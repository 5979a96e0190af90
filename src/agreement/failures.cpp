#include "agreement/failures.h"

#include <algorithm>

#include "core/doorbell.h"

namespace tutti::detail {

void Failures::add(Origin origin) {
  if (std::find(active_.begin(), active_.end(), origin) == active_.end()) active_.push_back(origin);
}

void Failures::forget(const std::vector<Origin>& origins) {
  std::erase_if(active_, [&](Origin o) { return std::find(origins.begin(), origins.end(), o) != origins.end(); });
}

void Failures::write(uint64_t seq) {
  if (is_open_ && skipping() && intervals_.back().origin == first()) return;
  if (is_open_) intervals_.back().last = seq - 1;
  is_open_ = skipping();
  if (skipping()) intervals_.push_back({first(), seq, UINT64_MAX});
  if (intervals_.size() > kKept) intervals_.pop_front();
  Writer out;
  out.put(static_cast<uint64_t>(intervals_.size()));
  for (const Interval& i : intervals_) {
    encode(out, i.origin);
    out.put(i.first);
    out.put(i.last);
  }
  record_.write(out.bytes());
}

std::optional<Origin> Failures::at(const SharedRecord& record, uint64_t seq, const std::function<bool()>& gives_up) {
  std::vector<std::byte> bytes;
  while (!record.read(bytes)) {
    if (gives_up()) return std::nullopt;
    yield_cpu();
  }
  if (bytes.empty()) return std::nullopt;
  Reader in(bytes);
  for (uint64_t n = in.count(28); n > 0; --n) {
    const Origin origin = decode_origin(in);
    const auto first = in.get<uint64_t>(), last = in.get<uint64_t>();
    if (first <= seq && seq <= last) return origin;
  }
  return std::nullopt;
}

}  // namespace tutti::detail

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "core/printable.h"
#include "tutti/distributed.h"
#include "tutti/error.h"
#include "tutti/worker.h"

namespace tutti::distributed {
namespace {

/// Reads a placement's text from left to right.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::vector<PlacementSpec> all() {
    std::vector<PlacementSpec> specs{one()};
    while (take(',')) specs.push_back(one());
    if (at_ < text_.size()) fail("a comma, or the end");
    return specs;
  }

 private:
  PlacementSpec one() {
    if (take('R')) return PlacementSpec::replica();
    if (take('P')) return partial();
    if (!take('S')) fail("S[axis], R, or P");
    expect('[');
    const int64_t axis = number(std::numeric_limits<int>::max());
    expect(']');
    if (!take('(')) return PlacementSpec::sharding(static_cast<int>(axis));
    std::vector<int64_t> sizes{number()};
    while (take(',')) sizes.push_back(number());
    expect(')');
    return PlacementSpec::ragged(static_cast<int>(axis), std::move(sizes));
  }
  PlacementSpec partial() {
    if (!take('(')) return PlacementSpec::partial();
    skip_spaces();
    const size_t end = std::min(text_.find_first_of(" )", at_), text_.size()), begin = std::exchange(at_, end);
    expect(')');
    return PlacementSpec::partial(text_.substr(begin, end - begin));
  }
  int64_t number(int64_t most = std::numeric_limits<int64_t>::max()) {
    skip_spaces();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc() || value < 0 || value > most) fail(fmt::format("a number from 0 to {}", most));
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }
  void skip_spaces() { at_ = std::min(text_.find_first_not_of(' ', at_), text_.size()); }
  bool take(char c) {
    skip_spaces();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    skip_spaces();
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(fmt::format("'{}'", c));
  }
  [[noreturn]] void fail(const std::string& expected) const {
    throw UsageError(
        fmt::format("placement '{}': expected {} at position {}, came {}; such as 'S[0], R', or 'P(max), S[1](3, 0, 5)'", text_,
                    expected, at_, at_ == text_.size() ? "the end" : fmt::format("'{}'", begin_of_rest())));
  }

  /// Some characters, whole ones of UTF-8.
  std::string begin_of_rest() const {
    size_t end = std::min(at_ + 8, text_.size());
    while (end < text_.size() && (static_cast<unsigned char>(text_[end]) & 0xc0) == 0x80) ++end;
    return detail::printable(text_.substr(at_, end - at_));
  }

  std::string_view text_;
  size_t at_ = 0;
};

int checked(int axis) {
  if (axis < 0) throw UsageError(fmt::format("a placement cuts axis {}; axes count from 0", axis));
  return axis;
}

}  // namespace

PlacementSpec PlacementSpec::sharding(int axis) {
  PlacementSpec spec(PlacementSpecKind::kSharding);
  spec.axis_ = checked(axis);
  return spec;
}

PlacementSpec PlacementSpec::replica() { return PlacementSpec(PlacementSpecKind::kReplica); }

PlacementSpec PlacementSpec::partial(std::string_view op) {
  PlacementSpec spec(PlacementSpecKind::kPartial);
  spec.op_ = to_string(parse_reduce_op(op));
  return spec;
}

PlacementSpec PlacementSpec::ragged(int axis, std::vector<int64_t> sizes) {
  PlacementSpec spec(PlacementSpecKind::kRagged);
  spec.axis_ = checked(axis);
  if (sizes.empty()) throw UsageError("a ragged placement has no sizes; give one for each worker along the mesh dimension");
  for (const int64_t size : sizes)
    if (size < 0) throw UsageError(fmt::format("a ragged placement has a part of size {}; 0 is the least", size));
  spec.sizes_ = std::move(sizes);
  return spec;
}

std::string to_string(const PlacementSpec& spec) {
  switch (spec.kind()) {
    case PlacementSpecKind::kReplica: return "R";
    case PlacementSpecKind::kPartial: return spec.op() == "sum" ? "P" : fmt::format("P({})", spec.op());
    case PlacementSpecKind::kSharding: return fmt::format("S[{}]", spec.axis());
    case PlacementSpecKind::kRagged: return fmt::format("S[{}]({})", spec.axis(), fmt::join(spec.sizes(), ", "));
  }
  return {};
}

Placement::Placement(std::vector<PlacementSpec> dim_specs) : dim_specs_(std::move(dim_specs)) {
  if (dim_specs_.empty()) throw UsageError("a placement has no entries; give one for each mesh dimension");
  const PlacementSpec* first = nullptr;
  for (const PlacementSpec& spec : dim_specs_) {
    if (spec.kind() != PlacementSpecKind::kPartial) continue;
    if (first && first->op() != spec.op())
      throw UsageError(fmt::format("placement '{}' reduces by {} and by {}; which goes first would matter: use one",
                                   to_string(*this), first->op(), spec.op()));
    first = &spec;
  }
}

Placement Placement::from_text(std::string_view text) { return Placement(Reader(text).all()); }

std::string to_string(const Placement& placement) {
  std::string text;
  for (const PlacementSpec& spec : placement.dim_specs()) text += (text.empty() ? "" : ", ") + to_string(spec);
  return text;
}

}  // namespace tutti::distributed

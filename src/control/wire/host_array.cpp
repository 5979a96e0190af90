#include "control/wire/host_array.h"

#include <functional>
#include <string_view>

#include "core/settings.h"
#include "tutti/error.h"

namespace tutti::detail {
namespace {

int64_t hash(const Tensor& array) {
  const std::string_view bytes(static_cast<const char*>(array.data()), static_cast<size_t>(array.size_bytes()));
  return static_cast<int64_t>(std::hash<std::string_view>{}(bytes));
}

}  // namespace

Value pack_host_array(const Tensor& host) { return settings().check_host_arrays ? Value(List{host, hash(host)}) : Value(host); }

Tensor unpack_host_array(const Value& packed) {
  const auto* checked = std::get_if<List>(&packed.data());
  if (!checked) return packed.as<Tensor>();
  auto host = (*checked)[0].as<Tensor>();
  if (hash(host) != (*checked)[1].as<int64_t>())
    throw UsageError("host_array has changed since copy_to_worker_0; leave it alone until a sync of worker 0");
  return host;
}

}  // namespace tutti::detail

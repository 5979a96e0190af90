#include "control/register_file.h"

#include <fmt/format.h>

#include "core/wire.h"

namespace tutti {

void RegisterFile::grow(int64_t id) {
  constexpr int64_t kMost = int64_t{1} << 40;
  if (id <= 0 || id > kMost) throw WireError(fmt::format("register {} does not exist", id));
  slots_.resize(std::max<size_t>(static_cast<size_t>(id) + 1, slots_.size() * 2));
}

}  // namespace tutti

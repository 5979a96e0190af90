#include "collective/nccl/progress.h"

#include <fmt/format.h>

#include <span>
#include <string_view>

#include "core/settings.h"
#include "device/devices.h"
#include "tutti/error.h"

namespace tutti::detail::nccl {

void Progress::fail(const std::string& text) {
  state = State::kFailed;
  text.copy(why, sizeof why - 1);
}

void Progress::is_on(Device device) { physical_name(device).copy(gpu, sizeof gpu - 1); }

std::vector<Progress> exchange(const Making& making, const Progress& mine) {
  std::vector<Progress> all(making.members.size());
  making.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  for (size_t r = 0; r < all.size(); ++r)
    if (all[r].state == Progress::State::kFailed)
      throw SystemError(fmt::format("worker {} can't begin a communicator: {}", making.members[r], all[r].why));
  return all;
}

void check_gpus(const Making& making, const std::vector<Progress>& all) {
  if (settings().allow_shared_device) return;
  for (size_t r = 0; r < all.size(); ++r)
    for (size_t q = 0; q < r; ++q) {
      const std::string_view gpu = all[r].gpu;
      if (gpu.empty() || gpu != all[q].gpu) continue;
      throw UsageError(
          fmt::format("workers {} and {} both have the GPU {}; start as many workers on a node as it has GPUs, give "
                      "init_ccl their numbers, or allow it by TUTTI_ALLOW_SHARED_DEVICE=1",
                      making.members[q], making.members[r], gpu.substr(0, gpu.rfind(' '))));
    }
}

}  // namespace tutti::detail::nccl

#include "core/settings.h"

#include <array>
#include <atomic>
#include <variant>

#include "core/env.h"

namespace tutti::detail {
namespace {

struct Row {
  const char* name;
  std::variant<std::string Settings::*, int64_t Settings::*, bool Settings::*> field;
  int64_t least = 0, most = 1;
};

constexpr Row kRows[] = {
    {"TUTTI_LOG", &Settings::log},
    {"TUTTI_RANKS_PER_NODE", &Settings::ranks_per_node, 1, 1 << 20},
    {"TUTTI_BIND", &Settings::bind},
    {"TUTTI_TOPOLOGY", &Settings::topology},
    {"TUTTI_TIMEOUT", &Settings::timeout_s, 1, 1000000000},
    {"TUTTI_HEARTBEAT", &Settings::heartbeat_s, 0, 1 << 20},
    {"TUTTI_PREEMPT_SIGNAL", &Settings::preempt_signal},
    {"TUTTI_TRACE", &Settings::trace},
    {"TUTTI_FAULT", &Settings::fault},
    {"TUTTI_CHECK_HOST_ARRAYS", &Settings::check_host_arrays},
    {"TUTTI_ALONE", &Settings::alone},
    {"TUTTI_SHARED_MEMORY", &Settings::shared_memory},
    {"TUTTI_ARENA", &Settings::arena},
    {"TUTTI_SIMD", &Settings::simd},
    {"TUTTI_ALLOW_SHARED_DEVICE", &Settings::allow_shared_device},
    {"TUTTI_CUDA_LIBRARY", &Settings::cuda_library},
    {"TUTTI_HIP_LIBRARY", &Settings::hip_library},
    {"TUTTI_NCCL_LIBRARY", &Settings::nccl_library},
    {"TUTTI_RCCL_LIBRARY", &Settings::rccl_library},
    {"TUTTI_TVM_LIBRARY", &Settings::tvm_library},
    {"TUTTI_MPI_MAX_COUNT", &Settings::mpi_max_count, 1, int64_t{1} << 30},
};

/// @throws SetUpError
void read(const Row& row, Settings& s) {
  if (const auto* text = std::get_if<std::string Settings::*>(&row.field)) {
    if (auto value = env_string(row.name)) s.*(*text) = std::move(*value);
  } else if (const auto* number = std::get_if<int64_t Settings::*>(&row.field)) {
    s.*(*number) = env_int(row.name, s.*(*number), row.least, row.most);
  } else {
    bool& yes = s.*std::get<bool Settings::*>(row.field);
    yes = env_int(row.name, yes, row.least, row.most) == 1;
  }
}

/// All that ever were in use, as some thread may look at an old one; the same ones are used again.
struct Kept {
  Settings settings;
  Kept* before;
};
std::atomic<Kept*> kept{nullptr};
std::atomic<const Settings*> current{nullptr};

/// Without a lock, which a fork could find taken.
const Settings* keep(const Settings& now) {
  for (const Kept* one = kept.load(std::memory_order_acquire); one; one = one->before)
    if (one->settings == now) return &one->settings;
  auto* made = new Kept{now, kept.load(std::memory_order_acquire)};
  while (!kept.compare_exchange_weak(made->before, made, std::memory_order_acq_rel)) {
  }
  return &made->settings;
}

}  // namespace

std::span<const char* const> Settings::names() {
  static const auto names = [] {
    std::array<const char*, std::size(kRows)> all{};
    for (size_t i = 0; i < all.size(); ++i) all[i] = kRows[i].name;
    return all;
  }();
  return names;
}

const Settings& settings() {
  if (const Settings* known = current.load(std::memory_order_acquire)) return *known;
  Settings first;
  for (const Row& row : kRows) try {
      read(row, first);
    } catch (const SetUpError&) {  // its default stands until read_settings() says so
    }
  const Settings* none = nullptr;  // unless a session has begun meanwhile
  const Settings* made = keep(first);
  return current.compare_exchange_strong(none, made, std::memory_order_acq_rel) ? *made : *none;
}

void read_settings() {
  Settings now;
  for (const Row& row : kRows) read(row, now);
  current.store(keep(now), std::memory_order_release);
}

}  // namespace tutti::detail

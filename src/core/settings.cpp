#include "core/settings.h"

#include <array>
#include <atomic>
#include <variant>

#include "core/env.h"

namespace tutti {
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
    {"TUTTI_MPI_MAX_COUNT", &Settings::mpi_max_count, 1, int64_t{1} << 30},
};

std::atomic<const Settings*> current{nullptr};

}  // namespace

std::span<const char* const> Settings::names() {
  static const auto names = [] {
    std::array<const char*, std::size(kRows)> all{};
    for (size_t i = 0; i < all.size(); ++i) all[i] = kRows[i].name;
    return all;
  }();
  return names;
}

Settings Settings::read() {
  Settings s;
  for (const Row& row : kRows) {
    if (const auto* text = std::get_if<std::string Settings::*>(&row.field)) {
      if (auto value = env_string(row.name)) s.*(*text) = std::move(*value);
    } else if (const auto* number = std::get_if<int64_t Settings::*>(&row.field)) {
      s.*(*number) = env_int(row.name, s.*(*number), row.least, row.most);
    } else {
      bool& yes = s.*std::get<bool Settings::*>(row.field);
      yes = env_int(row.name, yes, row.least, row.most) == 1;
    }
  }
  return s;
}

const Settings& settings() {
  if (const Settings* known = current.load(std::memory_order_acquire)) return *known;
  try {
    read_settings();
  } catch (const SetUpError&) {
    static const Settings defaults;
    return defaults;
  }
  return *current.load(std::memory_order_acquire);
}

void read_settings() {
  const Settings now = Settings::read();
  const Settings* before = current.load(std::memory_order_acquire);
  if (before && *before == now) return;
  current.store(new Settings(now), std::memory_order_release);  // the old ones stay: some thread may look at them
}

}  // namespace tutti

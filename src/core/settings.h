#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace tutti::detail {

/// What users may set in the environment. docs/reference.md, "Environment", says what each means.
struct Settings {
  std::string log = "warn", bind, topology, preempt_signal = "USR1", trace, fault, simd;
  std::string cuda_library, hip_library, nccl_library, rccl_library, tvm_library;
  int64_t ranks_per_node = 0;  ///< 0: all of a machine's
  int64_t timeout_s = 600, heartbeat_s = 5;
  int64_t mpi_max_count = int64_t{1} << 30;  ///< elements of one MPI call; tests lower it
  bool check_host_arrays = false, alone = false, allow_shared_device = false, shared_memory = true, arena = true;

  static std::span<const char* const> names();  ///< of the variables
  bool operator==(const Settings&) const = default;
};

/// As of the last read_settings(). The first look of a process reads them, too; in the place of one that is wrong its default
/// stands, until read_settings() says so. Any thread.
const Settings& settings();
/// A job or a session begins: the environment may have changed. On the thread that may change it.  @throws SetUpError
void read_settings();

}  // namespace tutti::detail

// What a redistribution takes of memory is what peak_bytes says: one of them in a process, so that nothing is kept from another.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "distributed/memory.h"
#include "support/session_kinds.h"

namespace {

using namespace tutti;
using namespace tutti::distributed;
using namespace tutti_test;

int64_t kib_of(const char* field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(field)) return std::stoll(line.substr(line.find(':') + 1));
  return -1;
}

int64_t before = 0;
void begin() {
  std::ofstream("/proc/self/clear_refs") << 5;  // VmHWM is VmRSS again
  before = kib_of("VmRSS");
}
int64_t taken_bytes() { return (kib_of("VmHWM") - before) * 1024; }

[[maybe_unused]] const bool registered = [] {
  register_global_func("memory.fill",
                       [](const Tensor& part) { std::memset(part.data(), 1, static_cast<size_t>(part.size_bytes())); });
  register_global_func("memory.begin", begin);
  register_global_func("memory.taken_bytes", taken_bytes);
  return true;
}();

/// 64 MiB.
void check(const char* from_text, const char* to_text, Shape mesh_shape = {workers()}) {
  Session session = make_session();
  const DeviceMesh mesh(std::move(mesh_shape));
  const auto info = [&](int64_t rows, const char* text) {
    return DTensorStructInfo({{rows, 4096}, kFloat32}, mesh, Placement::from_text(text));
  };
  empty(session, info(64, from_text)).redistribute(info(64, to_text).placement());  // buffers and communicators are made
  const DTensor tensor = empty(session, info(4096, from_text));
  session.call(session.get_global_func("memory.fill"), {tensor.parts()});
  const DTensorStructInfo to = info(4096, to_text);
  session.sync_all();
  const bool is_one_process = kind() == "thread";
  const DRef start = session.get_global_func("memory.begin"), end = session.get_global_func("memory.taken_bytes");
  is_one_process ? begin() : void(session.call(start, {}));
  session.sync_all();
  const DTensor moved = tensor.redistribute(to.placement());
  session.sync_all();
  std::vector<int64_t> taken;
  if (is_one_process) taken.push_back(taken_bytes());
  else
    for (const DRef all = session.call(end, {}); std::ssize(taken) < workers();)
      taken.push_back(all.debug_get_from_remote(static_cast<int>(taken.size())).as<int64_t>());
  const int64_t in_each = is_one_process ? workers() : 1;
  const Peak memory = peak(plan(tensor.info(), to));
  const int64_t result = element_count(to.local(0).shape) * 4, stated = is_one_process ? memory.mapped : memory.packed;
  for (size_t i = 0; i < taken.size(); ++i) {
    EXPECT_LE(taken[i], in_each * (stated + (1 << 20))) << "process " << i << "; " << explain(tensor.info(), to);
    EXPECT_GE(taken[i], in_each * result) << "process " << i << ": is it measured?";
  }
}

TEST(Memory, of_other_cuts) { check("S[0]", "S[1]"); }
TEST(Memory, of_replicas) { check("S[0]", "R"); }
TEST(Memory, of_sums_by_parts) { check("P", "S[1]"); }
TEST(Memory, of_sums) { check("P", "R"); }

}  // namespace

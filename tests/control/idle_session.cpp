// idle_session session|pool: four ranks do nothing for four seconds; prints each rank's CPU share and fails above 3 %.
#include <sys/resource.h>

#include <cstdio>
#include <cstring>
#include <thread>

#include "tutti/tutti.h"

namespace {

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  auto seconds = [](timeval t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

const bool registered = tutti::register_global_func("idle.cpu", cpu_seconds);

std::vector<double> measure(tutti::Session& session) {
  tutti::DRef cpu = session.get_global_func("idle.cpu")();
  std::vector<double> all;
  for (int w = 0; w < session.num_workers(); ++w) all.push_back(cpu.debug_get_from_remote(w).as<double>());
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  return tutti::run(argc, argv, [](int n, char** args) {
    constexpr std::chrono::seconds kWindow{4};  // in the first of which leaders still nap for short
    const bool pool = n > 1 && std::strcmp(args[1], "pool") == 0;
    auto session = std::make_unique<tutti::Session>(tutti::Session::create());
    const auto before = measure(*session);
    if (pool) session.reset();
    std::this_thread::sleep_for(kWindow);
    if (pool) session = std::make_unique<tutti::Session>(tutti::Session::create());
    const auto after = measure(*session);
    int status = 0;
    for (size_t w = 0; w < after.size(); ++w) {
      const double percent = (after[w] - before[w]) / std::chrono::duration<double>(kWindow).count() * 100;
      std::printf("%s rank %zu: %.2f %%\n", pool ? "pool" : "session", w, percent);
      if (percent > 3) status = 1;
    }
    return status;
  });
}

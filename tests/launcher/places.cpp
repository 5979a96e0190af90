// places BIND: where the ranks of a job are, as RunOptions::bind wants it.
#include <cstdio>

#include "tutti/session.h"

int main(int argc, char** argv) {
  const auto controller = [](int, char**) {
    tutti::Session session = tutti::Session::create();
    const auto places = session.places();
    for (size_t w = 0; w < places.size(); ++w) {
      const tutti::Place& place = places[w];
      std::printf("worker %zu %s %s %s:", w, place.is_bound ? "bound" : "left", place.gpu.empty() ? "-" : place.gpu.c_str(),
                  place.gpu_pci.empty() ? "-" : place.gpu_pci.c_str());
      for (const int cpu : place.cpus) std::printf(" %d", cpu);
      for (const int numa : place.memory) std::printf(" memory %d", numa);
      std::printf(": %s\n", place.why.c_str());
    }
    return 0;
  };
  return tutti::run(argc, argv, controller, {.bind = argc > 1 ? argv[1] : ""});
}

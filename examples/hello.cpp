// Every worker says who it is. mpirun -n 4 build/examples/hello
#include <cstdio>

#include "tutti/tutti.h"

static const bool registered = tutti::register_global_func(
    "hello.greet", [](const std::string& whom) { return whom + " from worker " + std::to_string(tutti::worker::id()); });

int main(int argc, char** argv) {
  return tutti::run(argc, argv, [](int, char**) {
    auto session = tutti::Session::create();
    auto greet = session.get_global_func("hello.greet");
    tutti::DRef greeting = greet("hello");
    for (int w = 0; w < session.num_workers(); ++w)
      std::printf("%s\n", greeting.debug_get_from_remote(w).as<std::string>().c_str());
    return 0;
  });
}

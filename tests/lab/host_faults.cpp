// host_faults WHAT [N]: programs for check_host_faults.sh.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "tutti/tutti.h"

namespace {

using namespace tutti;

const bool registered[] = {
    register_global_func("host.throw",
                         [](int on) {
                           if (worker::id() == on) throw std::runtime_error("told to throw");
                         }),
    register_global_func("host.kill",
                         [](int on) {
                           if (worker::id() == on) std::raise(SIGKILL);
                         }),
    register_global_func("host.work",
                         [] {
                           const auto src = Tensor::full<float>({1000}, 1), dst = Tensor::like(src);
                           worker::world().allreduce(src, dst);
                         }),
    register_global_func("host.compute",
                         [](int on) {
                           if (worker::id() == on) std::this_thread::sleep_for(std::chrono::hours(1));
                           worker::world().barrier();
                         }),
};

int controller(int, char** argv) {
  const std::string what = argv[1];
  Session s = Session::create();
  s.sync_all();
  std::printf("at work\n");
  std::fflush(stdout);
  if (what == "compute") s.get_global_func("host.compute")(std::atoi(argv[2]));
  if (what == "throw") s.get_global_func("host.throw")(s.num_workers() - 1);
  if (what == "kill") s.get_global_func("host.kill")(s.num_workers() - 1);
  auto work = s.get_global_func("host.work");
  for (int i = 0; what == "work" && i < std::atoi(argv[2]); ++i) {
    work();
    s.sync_all();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  try {
    s.sync_all();
    std::printf("all is well with %d\n", s.num_workers());
  } catch (const RemoteError& error) {
    std::printf("RemoteError: %s\n", error.what());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return run(argc, argv, controller); }

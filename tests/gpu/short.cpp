// A short program on GPUs; on those that are not there one call may fail (STANDIN_FAIL; sweep.py). Arguments: a number of threads
// (2), or "mpi"; "killed": on ranks, the last of which dies while the others wait for it; "uses": of the stand-ins' functions;
// "gpus": how many there are. It says how it ended:
//   done                     nothing failed
//   error, goes on: TEXT     the first try failed, the second one in the same session did not
//   error, stays: TEXT       both failed
//   at the end: TEXT         nothing failed before shutdown()
//   ended: TEXT              the session is over, and says why
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "device/devices.h"
#include "gpu/standin/control.h"
#include "tutti/tutti.h"

namespace {

using namespace tutti;

void expect(bool ok, const char* what) {
  if (!ok) throw std::logic_error(what);
}

void use(Session& s) {
  s.init_ccl("nccl");
  const int n = s.num_workers();
  const DRef x = s.broadcast(Tensor::full<float>({1000}, 2)), sum = s.empty({1000}, kFloat32);
  s.allreduce(x, sum);
  const DRef rows = s.scatter(Tensor::full<float>({n, 3}, 3)), all = s.empty({3 * n}, kFloat32, {}, true);
  s.gather_to_worker0(rows, all);
  s.sync_all();
  for (int w = 0; w < n; ++w) {
    const auto got = sum.debug_get_from_remote(w).as<Tensor>();
    for (const float value : got.values<float>()) expect(value == 2.0f * static_cast<float>(n), "a sum is wrong");
  }
  const auto got = all.debug_get_from_remote(0).as<Tensor>();
  for (const float value : got.values<float>()) expect(value == 3, "a row is wrong");
}

/// The others are in a collective when the last worker dies.
void lose_one(Session s) {
  use(s);
  const DRef x = s.broadcast(Tensor::full<float>({1000}, 2));
  s.sync_all();
  s.call(s.get_global_func("short.die"), {s.num_workers() - 1});
  s.allreduce(x, x);
  s.sync_all(std::chrono::seconds(20));
}

const bool registered = register_global_func("short.die", [](int64_t who) {
  if (worker::id() != who) return;
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  std::raise(SIGKILL);
});

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

void report(Session s) {
  std::string failure;
  try {
    use(s);
  } catch (const RemoteError& error) {
    failure = first_line(error);
  }
  if (!failure.empty()) try {
      use(s);
      std::printf("error, goes on: %s\n", failure.c_str());
    } catch (const RemoteError& error) {
      std::printf("error, stays: %s\n", first_line(error).c_str());
    }
  try {
    s.shutdown();
    if (failure.empty()) std::puts("done");
  } catch (const RemoteError& error) {
    std::printf("at the end: %s\n", first_line(error).c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "2";
  try {
    if (what == "gpus") {
      std::printf("%zu\n", detail::device_api(cuda()).pci_ids().size());
    } else if (what == "mpi" || what == "killed") {
      return run(argc, argv, [&](int, char**) {
        if (what == "mpi") report(Session::create());
        else lose_one(Session::create());
        return 0;
      });
    } else if (what == "uses") {
      report(ThreadedSession(2));
      tutti_test::standin_control::find<void()>("TUTTI_CUDA_LIBRARY", "standin_print_uses")();
    } else {
      report(ThreadedSession(std::stoi(what)));
    }
  } catch (const TransportError& error) {
    std::printf("ended: %s\n", first_line(error).c_str());
  } catch (const SystemError& error) {
    std::puts(error.what());
    return 1;
  }
  return 0;
}

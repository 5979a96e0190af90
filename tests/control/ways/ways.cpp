// What a program does by the name in argv[1]; check_ways.sh looks at exit codes and output.
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

const bool registered[] = {register_global_func("ways.fail", [] { throw std::runtime_error("told to"); }),
                           register_global_func("ways.stuck",
                                                [](int on) {
                                                  while (worker::id() == on)
                                                    std::this_thread::sleep_for(std::chrono::milliseconds(1));
                                                }),
                           register_global_func("ways.echo", [](const std::string& text) { return text; }),
                           register_global_func("ways.killed",
                                                [](int on) {
                                                  if (worker::id() == on) std::raise(SIGKILL);
                                                }),
                           register_global_func("ways.sum",
                                                [] {
                                                  const Tensor one = Tensor::full<float>({1}, 1);
                                                  worker::world().allreduce(one, one);
                                                }),
                           register_global_func("ways.stopped",
                                                [](int on) {
                                                  if (worker::id() == on) std::raise(SIGSTOP);
                                                }),
                           register_global_func("ways.stuck_before_barrier", [](int on) {  // the others wait for it
                             while (worker::id() == on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                             worker::world().barrier();
                           })};

/// Every worker answers.
void use(Session s) {
  DRef size = s.get_global_func("runtime.disco.world_size")();
  for (int w = 0; w < s.num_workers(); ++w)
    if (size.debug_get_from_remote(w) != Value(s.num_workers())) throw std::logic_error("wrong size");
  std::printf("%s session of %d\n", s.kind().c_str(), s.num_workers());
}

int controller(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "", kind = argc > 2 ? argv[2] : "";
  const int n = argc > 2 ? std::atoi(argv[2]) : 1, per_node = argc > 3 ? std::atoi(argv[3]) : 1;
  if (what == "return") return n;
  if (what == "throw") throw std::runtime_error("nobody catches this");
  if (what == "create") use(Session::create());
  if (what == "process") use(ProcessSession(n));
  if (what == "socket") use(SocketSession(n, per_node, 1, "localhost", 1234));
  if (what == "threads") use(ThreadedSession(n));
  if (what == "too_many_threads") use(ThreadedSession(n));
  if (what.starts_with("stuck") || what == "busy") {  // the last worker, or worker 0
    std::printf("output that was written before\n");
    std::fflush(stdout);
    Session s = kind == "thread"    ? Session(ThreadedSession(3))
                : kind == "process" ? Session(ProcessSession(3))
                                    : Session::create();
    const std::chrono::milliseconds limit(300);
    const int on = argc > 3 ? std::atoi(argv[3]) : 0;
    if (what == "stuck_and_thrown") {
      struct Guard {
        Session& session;
        std::chrono::milliseconds limit;
        ~Guard() { session.shutdown(limit); }
      } guard{s, limit};
      s.get_global_func("ways.stuck")(on);
      throw std::runtime_error("the first exception");
    }
    if (what == "busy") {
      s.get_global_func("ways.stuck")(on);
      std::printf("at work\n");
      std::fflush(stdout);
      s.sync_all();
    }
    if (what == "stuck_full") {  // so many commands wait that there is hardly room for another
      s.get_global_func("ways.stuck")(on);
      auto echo = s.get_global_func("ways.echo");
      for (int i = 0; i < 900; ++i) echo(std::string(1000, 'x'));
      echo(std::string(50000, 'x'));
    } else {
      s.get_global_func("ways." + what)(on);
    }
    s.sync_all(limit);
  }
  if (what == "preempted") {  // works until it is asked to make room
    Session s = Session::create();
    auto size = s.get_global_func("runtime.disco.world_size");
    s.on_preemption([&] {
      std::printf("saved on %ld workers\n", static_cast<long>(size().debug_get_from_remote(s.num_workers() - 1).as<int64_t>()));
    });
    std::printf("at work\n");
    std::fflush(stdout);
    for (;; std::this_thread::sleep_for(std::chrono::milliseconds(10))) size(), s.sync_all();
  }
  if (what == "killed") {
    Session s = Session::create();
    s.get_global_func("ways.killed")(std::atoi(argv[2]));
    s.get_global_func("ways.sum")();
    try {
      s.sync_all();
    } catch (const TransportError&) {
      try {
        Session::create();
      } catch (const UsageError& error) {
        std::fprintf(stderr, "%s\n", error.what());
      }
      throw;
    }
  }
  if (what == "stopped") {
    Session s = Session::create();
    s.get_global_func("ways.stopped")(s.num_workers() - 1);
    s.sync_all();
  }
  if (what == "drop") {
    Session s = Session::create();
    s.get_global_func("ways.fail")();
  }
  if (what == "static") {  // ended by exit(), after tutti::run
    static Session s = kind == "thread"    ? Session(ThreadedSession(3))
                       : kind == "process" ? Session(ProcessSession(3))
                                           : Session::create();
    use(s);
  }
  if (what == "shutdown_in_flight") {
    Session s = Session::create();
    struct Guard {
      Session& session;
      ~Guard() { session.shutdown(); }  // must log what it can't throw
    } guard{s};
    s.get_global_func("ways.fail")();
    throw std::runtime_error("the first exception");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return run(argc, argv, controller); }

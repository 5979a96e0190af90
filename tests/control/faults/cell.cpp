// One cell of the fault matrix: cell KIND FAULT WHO WHEN COLLECTIVE. What happens goes to stdout; matrix.py knows what should.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tutti/tutti.h"

namespace {

using namespace tutti;
using namespace std::chrono_literals;

constexpr int kWorkers = 4;

void sum(int64_t count) {
  const auto src = Tensor::full<float>({count}, 1), dst = Tensor::full<float>({count}, 0);
  worker::world().allreduce(src, dst);
  for (float x : dst.values<float>())
    if (x != static_cast<float>(worker::count())) throw std::logic_error("a wrong sum");
}

/// Paths that data takes: small parts travel with the agreement, large ones directly between the members' tensors, what is
/// foreign to the root's peers through its dst.
void collective(const std::string& name) {
  const Comm world = worker::world();
  const bool is_large = name.starts_with("large");
  const int64_t part = is_large ? 1 << 18 : 8, whole = part * world.size();
  const auto one = Tensor::full<float>({part}, 1), all = Tensor::full<float>({whole}, 1);
  std::vector<float> foreign(static_cast<size_t>(whole), 1);
  if (name == "allreduce") return sum(50);
  if (name == "large allreduce") return sum(whole);
  if (name == "large allgather") return world.allgather(one, all);
  if (name == "large reduce_scatter") return world.reduce_scatter(all, one);
  if (name == "large foreign broadcast") return world.broadcast(Tensor::wrap(foreign.data(), {whole}, kFloat32), all, 0);
  if (name == "scatter" || name == "large scatter") return world.scatter(all, one, 0);
  if (name == "gather" || name == "large gather") return world.gather(one, all, 0);
  throw std::invalid_argument("unknown collective " + name);
}

/// The controller's own, whose array is not copied: the call waits until it has been read.
void collective(Session& s, const std::string& name, const DRef& dst) {
  const Tensor array = Tensor::full<float>({kWorkers, 1 << 18}, 1);
  if (name == "lent scatter") s.scatter(array, dst, false);
  else s.broadcast(array, dst, false);
}

/// The child comes back from the worker function; it may not become a second worker.
void fork_that_returns() {
  const pid_t child = fork();
  if (child == 0) return;
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 1) throw std::logic_error("the child did not end by exit code 1");
}

void strike(const std::string& fault, const Function& module_function) {
  if (fault == "fork") return fork_that_returns();
  if (fault == "thread_exit") pthread_exit(nullptr);
  if (fault == "throw") throw std::runtime_error("told to throw");
  if (fault == "throw_int") throw 42;  // NOLINT: on purpose
  if (fault == "module") module_function(List{Value(5)});
  if (fault == "exit") std::exit(3);
  if (fault == "segv") std::raise(SIGSEGV);
  if (fault == "kill") std::raise(SIGKILL);
  while (fault == "loop") std::this_thread::sleep_for(1ms);
}

const bool registered[] = {
    register_global_func("cell.good", [] { sum(1000); }),
    // who: a worker, or all (-1); when: before or after the collective ("inside" comes from TUTTI_FAULT)
    register_global_func(
        "cell.run",
        [](const std::string& fault, int who, const std::string& when, const Function& module_function, const std::string& name) {
          const bool it_is_me = who < 0 || who == worker::id();
          if (when == "after") sum(500);
          if (it_is_me && when == "before") strike(fault, module_function);
          if (it_is_me && fault == "mismatch") sum(100 + worker::id());
          else if ((!it_is_me || fault != "skip") && !name.starts_with("lent")) collective(name);
          if (it_is_me && when == "after") strike(fault, module_function);
        }),
};

Session make(const std::string& kind) {
  if (kind == "thread") return ThreadedSession(kWorkers);
  if (kind == "process") return ProcessSession(kWorkers);
  return Session::create({.num_workers = kWorkers});
}

void show_that_it_works(Session& s, const char* whose) {
  s.get_global_func("cell.good")();
  s.sync_all(20s);
  std::printf("%s works\n", whose);
}

int controller(int, char** argv) {
  const std::string kind = argv[1], fault = argv[2], when = argv[4], name = argv[5];
  const bool is_lent = name.starts_with("lent");
  Session s = make(kind);
  DRef module_function = s.load_vm_module(TUTTI_TEST_MODULES "/rows.so")["length"];
  show_that_it_works(s, "the session");
  std::fflush(stdout);
  const bool is_endless = fault == "loop" || fault == "stall";
  const auto cell = s.get_global_func("cell.run");
  const DRef dst = is_lent ? s.empty(name == "lent scatter" ? Shape{1 << 18} : Shape{kWorkers, 1 << 18}, kFloat32) : DRef();
  try {
    if (!is_lent || when != "inside") cell(when == "inside" ? "none" : fault, std::atoi(argv[3]), when, module_function, name);
    if (is_lent) collective(s, name, dst);
    s.sync_all(is_endless ? 500ms : 20s);
    std::printf("nothing was raised\n");
  } catch (const TransportError& error) {
    std::printf("TransportError: %s\n", error.what());
    if (kind != "process") throw;
    Session next = make(kind);
    show_that_it_works(next, "the next session");
    return 0;
  } catch (const RemoteError& error) {
    std::printf("RemoteError: %s\n", error.what());
  } catch (const TimeoutError& error) {
    std::printf("TimeoutError: %s\n", error.what());
    return 0;  // the end of the session decides
  }
  show_that_it_works(s, "the session after it");
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return argc == 6 ? run(argc, argv, controller) : 2; }

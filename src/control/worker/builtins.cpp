#include "core/builtins.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>

#include "collective/ccl.h"
#include "control/worker/functions_above.h"
#include "control/worker/worker.h"
#include "core/env.h"
#include "core/interpreter.h"
#include "topology/assign.h"
#include "topology/bind.h"
#include "tutti/function.h"

namespace tutti::detail {
namespace {

Comm comm(bool in_group) { return in_group ? worker::group() : worker::world(); }

/// Registers hold None where a worker has no part in an array.
Tensor tensor_or_none(const Value& value) { return value.is_none() ? Tensor() : value.as<Tensor>(); }

Value empty(const Shape& shape, DType dtype, const Value& device, bool worker0_only, bool in_group) {
  const int rank = in_group ? worker::id() % worker::group_size() : worker::id();
  if (worker0_only && rank != 0) return {};
  return Tensor::empty(shape, dtype, device.is_none() ? worker::device() : device.as<Device>());
}

/// Worker 0's `src` reaches the first worker of every group, then each group scatters it: every group gets all of it.
void scatter_to_groups(const Value& src_value, const Value& dst) {
  const Comm world = worker::world();
  Tensor src = tensor_or_none(src_value);
  if (worker::id() == 0) {
    for (int group = 1; group < worker::num_groups(); ++group) {
      Tensor shape = Tensor::from<int64_t>({src.element_count()});
      world.send(shape, group * worker::group_size());
      world.send(src, group * worker::group_size());
    }
  } else if (worker::id() % worker::group_size() == 0) {
    Tensor count = Tensor::empty({1}, kInt64);
    world.recv(count, 0);
    src = Tensor::empty({count.item<int64_t>()}, dst.as<Tensor>().dtype(), dst.as<Tensor>().device());
    world.recv(src, 0);
  }
  worker::group().scatter(src, dst.as<Tensor>());
}

int next_group_peer(int step, const char* what) {
  const int peer = worker::id() + step * worker::group_size();
  if (peer < 0 || peer >= worker::count())
    throw UsageError(fmt::format("{}: worker {} of group {} has no such neighbour among {} groups", what, worker::id(),
                                 worker::group_id(), worker::num_groups()));
  return peer;
}

void send_to_next_group(const Tensor& buffer) { worker::world().send(buffer, next_group_peer(1, "send_to_next_group")); }
void recv_from_prev_group(const Tensor& buffer) { worker::world().recv(buffer, next_group_peer(-1, "recv_from_prev_group")); }

/// cpu_ids: one core for each worker of the session.
void bind_worker_to_cpu_core(const Shape& cpu_ids) {
  if (cpu_ids.size() < static_cast<size_t>(worker::count()))
    throw UsageError(fmt::format("bind_worker_to_cpu_core: {} cores for {} workers", cpu_ids.size(), worker::count()));
  const int64_t cpu = cpu_ids[static_cast<size_t>(worker::id())];
  cpu_set_t* mask = cpu >= 0 && cpu < 1 << 20 ? CPU_ALLOC(static_cast<size_t>(cpu) + 1) : nullptr;
  if (!mask) throw UsageError(fmt::format("bind_worker_to_cpu_core: worker {}: core {} does not exist", worker::id(), cpu));
  const size_t size = CPU_ALLOC_SIZE(static_cast<size_t>(cpu) + 1);
  CPU_ZERO_S(size, mask);
  CPU_SET_S(static_cast<size_t>(cpu), size, mask);
  const int code = sched_setaffinity(0, size, mask);  // this thread
  CPU_FREE(mask);
  if (code != 0)
    throw SystemError(
        fmt::format("bind_worker_to_cpu_core: worker {} on {} can't be bound to core {}: {}; the cores it may use are in "
                    "/proc/self/status (Cpus_allowed_list)",
                    worker::id(), host_name(), cpu, std::strerror(errno)));
}

/// The Python package registers what imports when it is loaded: in a Python process it is there.
void import_python_module(const std::string& module_name) {
  constexpr const char* kImport = "runtime.disco._import_python_module";
  if (!find_global_func(kImport)) start_python();
  get_global_func(kImport)(std::vector<Value>{module_name});
}

/// All of them override: a first time that failed, for want of memory, has left some.
template <class F>
void add(const char* name, F function, Function::Options options = {}) {
  register_global_func(fmt::format("runtime.disco.{}", name), function, {.override_existing = true, .function = options});
}

/// A name, or Disco's number in a shape, which compiled models have.
ReduceOp to_reduce_op(const char* function, const Value& op) {
  if (const auto* number = std::get_if<Shape>(&op.data())) {
    constexpr ReduceOp kNumbers[] = {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kAvg};
    if (number->size() != 1 || number->front() < 0 || number->front() >= std::ssize(kNumbers))
      throw UsageError(
          fmt::format("a reduction's number is {}, expected one from 0 to 4 (sum, prod, min, max, avg)", to_string(op)));
    return kNumbers[number->front()];
  }
  if (op.kind() != Value::Kind::kStr) throw_argument_type(std::string("runtime.disco.") + function, 1, "str", op);
  return parse_reduce_op(std::get<std::string>(op.data()));
}

/// Collectives, under "runtime.disco." and under each ccl's own prefix.
void add_collectives(const std::string& prefix) {
  auto add = [&](const char* name, auto function, int written_arg = -1) {
    detail::add((prefix + name).c_str(), function, {.written_arg = written_arg, .is_collective = written_arg >= 0});
  };
  add(
      "allreduce",
      [](const Tensor& src, const Value& op, bool in_group, const Tensor& dst) {
        comm(in_group).allreduce(src, dst, to_reduce_op("allreduce", op));
      },
      3);
  add(
      "reduce_scatter",
      [](const Tensor& src, const Value& op, bool in_group, const Tensor& dst) {
        comm(in_group).reduce_scatter(src, dst, to_reduce_op("reduce_scatter", op));
      },
      3);
  add(
      "allgather", [](const Tensor& src, bool in_group, const Tensor& dst) { comm(in_group).allgather(src, dst); }, 2);
  add(
      "all_to_all", [](const Tensor& src, bool in_group, const Tensor& dst) { comm(in_group).all_to_all(src, dst); }, 2);
  add(
      "broadcast_from_worker0",
      [](const Value& src, bool in_group, const Tensor& dst) { comm(in_group).broadcast(tensor_or_none(src), dst); }, 2);
  add(
      "scatter_from_worker0",
      [](const Value& from, bool in_group, const Tensor& to) { comm(in_group).scatter(tensor_or_none(from), to); }, 2);
  add(
      "gather_to_worker0",
      [](const Tensor& from, bool in_group, const Value& to) { comm(in_group).gather(from, tensor_or_none(to)); }, 2);
  add(
      "recv_from_worker0", [](const Tensor& buffer) { worker::world().recv(buffer, 0); }, 0);
  add("send_to_next_group", send_to_next_group);
  add("recv_from_prev_group", recv_from_prev_group, 0);
  add("send_to_worker", [](const Tensor& buffer, int receiver) { worker::world().send(buffer, receiver); });
  add(
      "recv_from_worker", [](const Tensor& buffer, int sender) { worker::world().recv(buffer, sender); }, 0);
  add("barrier", [](bool in_group) { comm(in_group).barrier(); });
  detail::add((prefix + "scatter_to_groups").c_str(), scatter_to_groups, {.written_arg = 1});  // several
}

void add_tests(const std::string& ccl) {
  // Disco's own two
  add((ccl + ".test_send_to_next_group_recv_from_prev_group").c_str(), [](const Tensor& buffer) {
    if (worker::count() != 4 || worker::num_groups() != 2) throw UsageError("this test needs 4 workers in 2 groups");
    if (worker::group_id() == 0) send_to_next_group(buffer);
    else recv_from_prev_group(buffer);
  });
  add((ccl + ".test_worker2_sends_to_worker0").c_str(), [](const Tensor& buffer) {
    if (worker::count() != 4 || worker::num_groups() != 2) throw UsageError("this test needs 4 workers in 2 groups");
    if (worker::id() == 2) worker::world().send(buffer, 0);
    else if (worker::id() == 0) worker::world().recv(buffer, 2);
  });
}

/// What is no part of Disco: for people, benchmarks and first tests of a cluster.
void add_our_own() {
  const RegisterOptions again{.override_existing = true};
  register_global_func(
      "tutti.describe_worker",
      [] {
        const auto& gpu = topology::assignment().gpu;  // of this process; of a machine that nobody has looked at: none
        return List{host_name(), getpid(), to_string(worker::device()), gpu.empty() ? "-" : gpu,
                    to_string(topology::granted().cpus)};
      },
      again);
  register_global_func(
      "tutti.place",
      [] {  // Session::places
        const auto& assigned = topology::assignment();
        const auto granted = topology::granted();
        const Shape cpus(granted.cpus.indices().begin(), granted.cpus.indices().end());
        const Shape memory(granted.memory.begin(), granted.memory.end());
        return List{host_name(), cpus, assigned.is_bound, assigned.gpu, assigned.gpu_pci, assigned.nic, assigned.why, memory};
      },
      again);
  register_global_func(
      "tutti.echo", [](const Value& value) { return value; }, again);
  register_global_func("tutti.quick_echo", [](const Value& value) { return value; },
                       {.override_existing = true, .function = {.quick = true}});
}

void register_all() {
  add_our_own();
  register_module_functions();
  register_distributed_functions();
  register_checkpoint_functions();
  register_program_functions();
  add("empty", empty);
  add("worker_id", [] { return Shape{worker::id()}; });  // a shape, as in Disco
  add("worker_rank", [] { return worker::id(); });
  add("world_size", [] { return worker::count(); });
  add("device", [] { return worker::device(); });
  add("ccl", [] { return worker::ccl(); });
  add("compiled_ccl", [] { return compiled_ccl(); });
  add("bind_worker_to_cpu_core", bind_worker_to_cpu_core);
  add("import_python_module", import_python_module);
  add("init_ccl", [](const std::string& ccl, const Shape& device_ids) { Worker::current()->init_ccl(ccl, device_ids); });
  add_collectives("");
  for (const char* ccl : {"mpi", "local", "nccl", "rccl"}) {
    add_collectives(std::string(ccl) + ".");
    add_tests(ccl);
  }
}

}  // namespace

void register_builtins() {
  static std::once_flag once;
  static thread_local bool is_at_it = false;  // the registry calls this for each of the functions, too
  if (is_at_it) return;
  std::call_once(once, [] {
    const struct AtIt {
      AtIt() { is_at_it = true; }
      ~AtIt() { is_at_it = false; }
    } at_it;
    register_all();
  });
}

}  // namespace tutti::detail

#include "tutti/session.h"

#include <fmt/format.h>

#include "control/controller/controller.h"

namespace tutti {
using namespace detail;

int64_t DRef::reg_id() const {
  if (!state_) throw UsageError("reg_id: the DRef is empty");
  return state_->id;
}
Value DRef::debug_get_from_remote(int worker_id, Timeout timeout, Where where) const {
  if (!state_) throw UsageError("debug_get_from_remote: the DRef is empty");
  return state_->controller->debug_get(*this, worker_id, timeout, where);
}
void DRef::debug_copy_from(int worker_id, const Value& value, Timeout timeout, Where where) const {
  if (!state_) throw UsageError("debug_copy_from: the DRef is empty");
  state_->controller->debug_set(*this, worker_id, value, timeout, where);
}
DRef::operator Value() const {
  if (!state_) return RegisterRef();  // refused with its position
  return RegisterRef{state_->session, state_->id, state_};
}
DRef DPackedFunc::call(Args args, Where where) const {
  if (!state_) throw UsageError("call of an empty DPackedFunc");
  return state_->controller->call(*this, args, where);
}

DPackedFunc DModule::operator[](const LocatedValue& name) const {
  if (!state_) throw UsageError("a function of an empty DModule");
  return DPackedFunc(state_->controller->call_builtin_at_once("module_get_function", List{*this, name.value}, name.where));
}

std::vector<std::string> DModule::functions(Timeout timeout, Where where) const {
  if (!state_) throw UsageError("the functions of an empty DModule");
  state_->controller->refuse_to_record("functions");
  const Value names =
      state_->controller->call_builtin("module_functions", List{*this}, where).debug_get_from_remote(0, timeout, where);
  std::vector<std::string> functions;
  for (const Value& name : names.as<List>()) functions.push_back(name.as<std::string>());
  return functions;
}

detail::Controller& Session::controller() const {
  if (!controller_) throw UsageError("the session is empty: it was moved from, or session_from gave it to a rank above 0");
  return *controller_;
}

int Session::num_workers() const { return controller().layout().num_workers; }
int Session::num_groups() const { return controller().layout().num_groups; }
int Session::num_nodes() const { return controller().layout().num_nodes(); }
const std::string& Session::kind() const { return controller().kind(); }
std::string Session::ccl() const { return controller().ccl(); }
bool Session::timed_out() const { return controller().timed_out(); }
bool Session::lost() const { return controller().is_lost(); }
Progress Session::progress() const { return controller().progress(); }

std::vector<Place> Session::places(Timeout timeout, Where where) const {
  controller().refuse_to_record("places");
  const DRef described = controller().call(controller().get_global_func("tutti.place", where), {}, where);
  std::vector<Place> all;
  for (int worker = 0; worker < num_workers(); ++worker) {
    const auto one = described.debug_get_from_remote(worker, timeout, where).as<List>();
    Place place{.host = one[0].as<std::string>(),
                .cpus = {},
                .memory = {},
                .is_bound = one[2].as<bool>(),
                .gpu = one[3].as<std::string>(),
                .gpu_pci = one[4].as<std::string>(),
                .nic = one[5].as<std::string>(),
                .why = one[6].as<std::string>()};
    for (const int64_t cpu : one[1].as<Shape>()) place.cpus.push_back(static_cast<int>(cpu));
    for (const int64_t numa : one[7].as<Shape>()) place.memory.push_back(static_cast<int>(numa));
    all.push_back(std::move(place));
  }
  return all;
}

DPackedFunc Session::get_global_func(std::string_view name, Where where) {
  return DPackedFunc(controller().get_global_func(name, where));
}
DRef Session::call(const DRef& func, const List& args, Where where) { return controller().call(func, args, where); }
DRef Session::call_builtin(const char* name, const List& args, Where where) {
  return controller().call_builtin(name, args, where);
}

DRef Session::empty(Shape shape, DType dtype, std::optional<Device> device, bool worker0_only, bool in_group, Where where) {
  size_bytes(shape, dtype);  // what no worker could make
  return call_builtin("empty", {std::move(shape), dtype, device ? Value(*device) : Value(), worker0_only, in_group}, where);
}
DModule Session::load_vm_module(std::string_view path, std::optional<Device> device, Where where) {
  return DModule(controller().call_builtin_at_once("load_vm_module", List{path, device ? Value(*device) : Value()}, where));
}
void Session::import_python_module(std::string_view module_name, Where where) {
  controller().refuse_to_record("import_python_module");
  call_builtin("import_python_module", {module_name}, where);
}
void Session::init_ccl(std::string_view ccl, const std::vector<int64_t>& device_ids, Where where) {
  controller().refuse_to_record("init_ccl");
  call_builtin("init_ccl", {ccl, Shape(device_ids)}, where);
  controller().set_ccl(ccl);
}

DRef Session::copy_to_worker_0(const Tensor& host_array, const DRef& remote_array, Where where) {
  if (!remote_array) return controller().copy_to_new(host_array, where);
  controller().copy(Action::kCopyToWorker0, host_array, remote_array, where);
  return remote_array;
}
void Session::copy_from_worker_0(const Tensor& host_array, const DRef& remote_array, Where where) {
  controller().copy(Action::kCopyFromWorker0, host_array, remote_array, where);
}

void Session::sync_worker(int worker_id, Timeout timeout, Where where) {
  if (worker_id < 0) worker_id = INT32_MAX;  // kAllWorkers is not an id
  controller().sync(worker_id, timeout, where);
}
void Session::sync_all(Timeout timeout, Where where) { controller().sync(kAllWorkers, timeout, where); }
void Session::on_preemption(std::function<void()> hook) { controller().on_preemption(std::move(hook)); }

void Session::shutdown(Timeout timeout, Where where) {
  if (controller_) controller_->shutdown(timeout, where);
}

namespace {

constexpr int64_t kCopied = int64_t{256} << 10;

/// use(src on worker 0): a copy of a small one, else src itself, which nobody reads any more on return.
template <class Use>
void with_source(detail::Controller& controller, const Tensor& src, const char* what, Where where, Use use) {
  const bool is_lent = src && src.size_bytes() > kCopied;
  use(is_lent ? controller.lend(src, what, where) : controller.copy_to_new(src, where));
  if (is_lent) controller.await_all(what, where);
}

}  // namespace

DRef Session::broadcast(const Tensor& src, const DRef& dst, bool /*in_group: every group is filled either way*/, Where where) {
  if (dst) controller().check(dst, "broadcast: dst");
  DRef result = dst;
  with_source(controller(), src, "broadcast", where, [&](const DRef& on_worker0) {
    if (!dst) result = empty(src.shape(), src.dtype(), {}, false, true, where);
    broadcast_from_worker0(on_worker0, result, false, where);
  });
  return result;
}
DRef Session::scatter(const Tensor& src, const DRef& dst, bool in_group, Where where) {
  if (dst) controller().check(dst, "scatter: dst");
  const int parts = in_group ? num_workers() / num_groups() : num_workers();
  if (!src || src.shape().empty() || src.shape()[0] != parts)
    throw UsageError(fmt::format("scatter: src has shape {}, expected shape[0] == {} ({})", to_string(src.shape()), parts,
                                 in_group ? "the group's size" : "num_workers"));
  DRef result = dst;
  with_source(controller(), src, "scatter", where, [&](const DRef& on_worker0) {
    if (!dst) result = empty(Shape(src.shape().begin() + 1, src.shape().end()), src.dtype(), {}, false, true, where);
    if (in_group && num_groups() > 1) call_builtin("scatter_to_groups", {on_worker0, result}, where);
    else scatter_from_worker0(on_worker0, result, false, where);
  });
  return result;
}
void Session::broadcast_from_worker0(const DRef& src, const DRef& dst, bool in_group, Where where) {
  call_builtin("broadcast_from_worker0", {src, in_group, dst}, where);
}
void Session::scatter_from_worker0(const DRef& from_array, const DRef& to_array, bool in_group, Where where) {
  call_builtin("scatter_from_worker0", {from_array, in_group, to_array}, where);
}
void Session::gather_to_worker0(const DRef& from_array, const DRef& to_array, bool in_group, Where where) {
  call_builtin("gather_to_worker0", {from_array, in_group, to_array}, where);
}
DRef Session::allreduce(const DRef& src, const DRef& dst, std::string_view op, bool in_group, Where where) {
  call_builtin("allreduce", {src, to_string(parse_reduce_op(op)), in_group, dst}, where);
  return dst;
}
DRef Session::allgather(const DRef& src, const DRef& dst, bool in_group, Where where) {
  call_builtin("allgather", {src, in_group, dst}, where);
  return dst;
}
DRef Session::reduce_scatter(const DRef& src, const DRef& dst, std::string_view op, bool in_group, Where where) {
  call_builtin("reduce_scatter", {src, to_string(parse_reduce_op(op)), in_group, dst}, where);
  return dst;
}
DRef Session::all_to_all(const DRef& src, const DRef& dst, bool in_group, Where where) {
  call_builtin("all_to_all", {src, in_group, dst}, where);
  return dst;
}
void Session::barrier(bool in_group, Where where) { call_builtin("barrier", {in_group}, where); }

}  // namespace tutti

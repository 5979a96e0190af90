#include <utility>

#include "control/worker/functions_above.h"
#include "distributed/access.h"
#include "distributed/join.h"
#include "distributed/redistribute.h"
#include "distributed/transition.h"
#include "tutti/distributed.h"
#include "tutti/error.h"
#include "tutti/function.h"

namespace tutti::distributed {
namespace {

DeviceMesh worker0() { return DeviceMesh({1}, {0}); }
Placement whole() { return Placement({PlacementSpec::replica()}); }

/// runtime.disco.redistribute
Value redistribute_part(const Value& part, const List& from, const List& to) {
  const Tensor result = redistribute(part, to_info(from), to_info(to));
  return result ? Value(result) : Value();
}

}  // namespace

DTensor DTensor::from_local(const DRef& parts, const DeviceMesh& mesh, const Placement& placement, Timeout timeout, Where where) {
  Access::controller(parts, "from_local").refuse_to_record("from_local");
  check_workers(mesh, Access::controller(parts, "from_local"));
  check_entries(placement, mesh, "from_local: the placement");
  return {parts, joined_info(issue_join(parts, mesh, placement, where), mesh, timeout, where)};
}

DTensor DTensor::redistribute(const Placement& placement, const std::optional<DeviceMesh>& mesh, Where where) const {
  detail::Controller& controller = Access::controller(parts_, "redistribute");
  DTensorStructInfo to(info_.tensor_sinfo(), mesh.value_or(info_.device_mesh()), placement);
  check_transition(info_, to);
  for (const DTensorStructInfo* each : {&info_, &std::as_const(to)}) check_workers(each->device_mesh(), controller);
  const DRef parts = controller.call_builtin("redistribute", List{parts_, to_values(info_), to_values(to)}, where);
  return {parts, std::move(to)};
}

Tensor DTensor::full(Timeout timeout, Where where) const {
  Access::controller(parts_, "full").refuse_to_record("full");
  return gather_to_worker0(where).debug_get_from_remote(0, timeout, where).as<Tensor>();
}

DRef DTensor::gather_to_worker0(Where where) const { return redistribute(whole(), worker0(), where).parts(); }

DTensor distribute(Session& session, const Tensor& array, const DeviceMesh& mesh, const Placement& placement, Where where) {
  if (!array) throw UsageError("distribute: the array is empty");
  const DTensorStructInfo info({array.shape(), array.dtype()}, mesh, placement);
  check_workers(mesh, Access::controller(session));
  const DTensor on_worker0(session.copy_to_worker_0(array, {}, where), {info.tensor_sinfo(), worker0(), whole()});
  return on_worker0.redistribute(placement, mesh, where);
}

}  // namespace tutti::distributed

void tutti::detail::register_distributed_functions() {
  register_global_func("runtime.disco.redistribute", distributed::redistribute_part, {.override_existing = true});
  distributed::register_join();
  distributed::register_new_parts();
  distributed::register_shard_map();
}

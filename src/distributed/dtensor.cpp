#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "control/controller/controller.h"
#include "control/worker/functions_above.h"
#include "distributed/redistribute.h"
#include "distributed/transition.h"
#include "tutti/distributed.h"
#include "tutti/error.h"
#include "tutti/function.h"

namespace tutti::distributed {
namespace {

List to_values(const DTensorStructInfo& info) {
  return {info.device_mesh().shape(), Shape(info.device_mesh().device_ids()), to_string(info.placement())};
}
DTensorStructInfo from_values(const TensorStructInfo& tensor, const List& values) {
  if (values.size() != 3)
    throw UsageError(fmt::format("redistribute: expected a mesh's shape, workers and a placement, got {} values", values.size()));
  return {tensor, DeviceMesh(values[0].as<Shape>(), values[1].as<Shape>()), Placement::from_text(values[2].as<std::string>())};
}

/// @throws UsageError
void check_workers(const DeviceMesh& mesh, int workers) {
  const int64_t last = std::ranges::max(mesh.device_ids());
  if (last >= workers)
    throw UsageError(fmt::format("worker {} of {} is not in this session, which has {} workers", last, to_string(mesh), workers));
}

DeviceMesh worker0() { return DeviceMesh({1}, {0}); }
Placement whole() { return Placement({PlacementSpec::replica()}); }

/// runtime.disco.redistribute
Value redistribute_part(const Value& part, const Shape& shape, DType dtype, const List& from, const List& to) {
  const TensorStructInfo tensor{shape, dtype};
  const Tensor result = redistribute(part, from_values(tensor, from), from_values(tensor, to));
  return result ? Value(result) : Value();
}

}  // namespace

DTensor DTensor::redistribute(const Placement& placement, const std::optional<DeviceMesh>& mesh, Where where) const {
  if (!parts_.state_) throw UsageError("redistribute: the DTensor's DRef is empty");
  detail::Controller& controller = *parts_.state_->controller;
  DTensorStructInfo to(info_.tensor_sinfo(), mesh.value_or(info_.device_mesh()), placement);
  check_transition(info_, to);
  for (const DTensorStructInfo* each : {&info_, &std::as_const(to)})
    check_workers(each->device_mesh(), controller.layout().num_workers);
  const List args{parts_, info_.tensor_sinfo().shape, info_.tensor_sinfo().dtype, to_values(info_), to_values(to)};
  return {controller.call_builtin("redistribute", args, where), std::move(to)};
}

Tensor DTensor::full(Timeout timeout, Where where) const {
  return gather_to_worker0(where).debug_get_from_remote(0, timeout, where).as<Tensor>();
}

DRef DTensor::gather_to_worker0(Where where) const { return redistribute(whole(), worker0(), where).parts(); }

DTensor distribute(Session& session, const Tensor& array, const DeviceMesh& mesh, const Placement& placement, Where where) {
  if (!array) throw UsageError("distribute: the array is empty");
  const DTensorStructInfo info({array.shape(), array.dtype()}, mesh, placement);
  check_workers(mesh, session.num_workers());
  const DTensor on_worker0(session.copy_to_worker_0(array, {}, where), {info.tensor_sinfo(), worker0(), whole()});
  return on_worker0.redistribute(placement, mesh, where);
}

}  // namespace tutti::distributed

void tutti::detail::register_distributed_functions() {
  register_global_func("runtime.disco.redistribute", distributed::redistribute_part, {.override_existing = true});
}

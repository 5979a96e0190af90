// Tensors that workers make by themselves, each its own part; and views of parts.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "distributed/access.h"
#include "distributed/element.h"
#include "distributed/join.h"
#include "distributed/transition.h"
#include "tutti/error.h"
#include "tutti/function.h"
#include "tutti/worker.h"

namespace tutti::distributed {
namespace {

/// Calls f(memory, index in the whole tensor, elements) for each row of the part.
template <class F>
void each_row(const Tensor& part, const Block& block, const Shape& whole, F f) {
  if (part.element_count() == 0) return;
  auto* to = static_cast<std::byte*>(part.data());
  const int64_t length = block.shape.empty() ? 1 : block.shape.back(), item = part.dtype().size_bytes();
  Shape index(block.shape.size(), 0);
  for (int64_t row = 0; row < part.element_count() / length; ++row, to += length * item) {
    int64_t begin = 0;
    for (size_t axis = 0; axis < index.size(); ++axis) begin = begin * whole[axis] + block.offset[axis] + index[axis];
    f(to, begin, length);
    for (size_t axis = index.size(); axis-- > 1;) {
      if (++index[axis - 1] < block.shape[axis - 1]) break;
      index[axis - 1] = 0;
    }
  }
}

/// runtime.disco.new_part. what: None, nothing is written; bytes, an element; an int, the seed of random values.
Value new_part(const List& values, const Value& what) {
  const DTensorStructInfo info = to_info(values);
  if (!info.device_mesh().coordinate(worker::id())) return {};
  const Block block = info.local(worker::id());
  const DType dtype = info.tensor_sinfo().dtype;
  if (what.is_none()) return Tensor::empty(block.shape, dtype, worker::device());
  const Tensor part = Tensor::empty(block.shape, dtype);
  if (const auto* element = std::get_if<Bytes>(&what.data()))
    fill_with(static_cast<std::byte*>(part.data()), part.element_count(), *element);
  else
    each_row(part, block, info.tensor_sinfo().shape,
             [&, seed = static_cast<uint64_t>(what.as<int64_t>())](auto* to, int64_t begin, int64_t count) {
               fill_random(to, dtype, seed, begin, count);
             });
  if (worker::device().type == dl::kCPU) return part;
  const Tensor on_device = Tensor::empty(block.shape, dtype, worker::device());
  on_device.copy_from(part);
  return on_device;
}

/// Of the indices begin, begin + step, ... those that lie in [origin, origin + extent), counted from the first.
struct Indices {
  int64_t first, count;
};
Indices indices_in(int64_t origin, int64_t extent, int64_t begin, int64_t count, int64_t step) {
  const auto before = [&](int64_t end) { return end <= begin ? 0 : std::min(count, (end - begin - 1) / step + 1); };
  const int64_t first = before(origin);
  return {first, before(origin + extent) - first};
}

/// runtime.disco.part_view: indices begin, begin + step, ... of an axis; a step of 0: one, and the axis goes.
Value part_view(const Value& value, const List& values, int64_t axis_number, int64_t begin, int64_t count, int64_t step) {
  const DTensorStructInfo info = to_info(values);
  if (!info.device_mesh().coordinate(worker::id())) return {};
  const Tensor part = checked_part(value, info);
  const auto axis = static_cast<size_t>(axis_number);
  const int64_t origin = info.local(worker::id()).offset[axis], stride = std::max<int64_t>(step, 1);
  const Indices mine = indices_in(origin, part.shape()[axis], begin, count, stride);
  Shape shape = part.shape(), strides = part.strides();
  shape[axis] = mine.count;
  const bool is_empty = tutti::element_count(shape) == 0;  // the step may be any number then
  const int64_t first = is_empty ? 0 : begin + mine.first * stride - origin;
  const int64_t offset = first * strides[axis] * part.dtype().size_bytes();
  if (mine.count > 1) strides[axis] *= stride;
  if (step == 0) {
    shape.erase(shape.begin() + axis_number);
    strides.erase(strides.begin() + axis_number);
  }
  return part.view(std::move(shape), std::move(strides), part.byte_offset() + static_cast<uint64_t>(offset));
}

/// runtime.disco.part_transpose
Value part_transpose(const Value& value, const List& values, const Shape& axes) {
  const DTensorStructInfo info = to_info(values);
  if (!info.device_mesh().coordinate(worker::id())) return {};
  const Tensor part = checked_part(value, info);
  Shape shape, strides;
  for (const int64_t axis : axes) {
    shape.push_back(part.shape()[static_cast<size_t>(axis)]);
    strides.push_back(part.strides()[static_cast<size_t>(axis)]);
  }
  return part.view(std::move(shape), std::move(strides), part.byte_offset());
}

/// The same cut along another axis.
PlacementSpec with_axis(const PlacementSpec& spec, int axis) {
  if (spec.kind() == PlacementSpecKind::kRagged) return PlacementSpec::ragged(axis, spec.sizes());
  return PlacementSpec::sharding(axis);
}

/// Partial values of new tensors: made whole, and then made partial, where nothing moves.
DTensor new_tensor(Session& session, const DTensorStructInfo& info, const Value& what, Where where) {
  detail::Controller& controller = Access::controller(session);
  check_workers(info.device_mesh(), controller);
  const DTensorStructInfo made = what.is_none() ? info : without_partial(info);
  check_transition(made, info);
  DTensor tensor(controller.call_builtin("new_part", List{to_values(made), what}, where), made);
  return made == info ? tensor : tensor.redistribute(info.placement(), {}, where);
}

/// What cuts an axis when every step-th of `count` indices from `begin` on are left of it.
PlacementSpec cut_of(const DTensorStructInfo& info, int dim, int64_t begin, int64_t count, int64_t step) {
  const PlacementSpec& spec = info.placement().dim_specs()[static_cast<size_t>(dim)];
  const auto axis = static_cast<size_t>(spec.axis());
  std::vector<int64_t> sizes;
  for (const int peer : info.device_mesh().peers(info.device_mesh().device_ids().front(), dim)) {
    const Block part = info.local(peer);
    sizes.push_back(indices_in(part.offset[axis], part.shape[axis], begin, count, step).count);
  }
  const auto parts = std::ssize(sizes);
  for (int64_t i = 0; i < parts; ++i)
    if (sizes[static_cast<size_t>(i)] != count / parts + (i < count % parts ? 1 : 0))
      return PlacementSpec::ragged(spec.axis(), sizes);
  return PlacementSpec::sharding(spec.axis());
}

/// The mesh dimension that cuts the axis; -1: none does.
int dim_that_cuts(const DTensorStructInfo& info, int axis, const char* what) {
  const auto& specs = info.placement().dim_specs();
  int found = -1;
  for (int dim = 0; dim < static_cast<int>(specs.size()); ++dim) {
    if (specs[static_cast<size_t>(dim)].axis() != axis) continue;
    if (found >= 0)
      throw UsageError(fmt::format("{}: {} and {} both cut axis {}; redistribute first, to a placement where one does", what,
                                   info.device_mesh().describe_dim(found), info.device_mesh().describe_dim(dim), axis));
    found = dim;
  }
  return found;
}

/// Every step-th of `count` indices from `begin` on. step 0: one index of an axis that is not cut, which the result lacks.
DTensor view_of(const DTensor& tensor, int axis, int64_t begin, int64_t count, int64_t step, const char* what, Where where) {
  const DTensorStructInfo& info = tensor.info();
  std::vector<PlacementSpec> specs = info.placement().dim_specs();
  if (const int dim = dim_that_cuts(info, axis, what); dim >= 0)
    specs[static_cast<size_t>(dim)] = cut_of(info, dim, begin, count, step);
  for (PlacementSpec& spec : specs)
    if (step == 0 && spec.axis() > axis) spec = with_axis(spec, spec.axis() - 1);
  TensorStructInfo whole = info.tensor_sinfo();
  whole.shape[static_cast<size_t>(axis)] = count;
  if (step == 0) whole.shape.erase(whole.shape.begin() + axis);
  DTensorStructInfo result(whole, info.device_mesh(), Placement(std::move(specs)));
  const List args{tensor.parts(), to_values(info), axis, begin, count, step};
  return {Access::controller(tensor.parts(), what).call_builtin("part_view", args, where), std::move(result)};
}

int64_t extent_of(const DTensor& tensor, int axis, const char* what) {
  const Shape& shape = tensor.info().tensor_sinfo().shape;
  if (axis < 0 || static_cast<size_t>(axis) >= shape.size())
    throw UsageError(fmt::format("{}: axis {} of a tensor of shape {}", what, axis, to_string(shape)));
  return shape[static_cast<size_t>(axis)];
}

}  // namespace

DTensor DTensor::slice(int axis, int64_t begin, int64_t end, int64_t step, Where where) const {
  const int64_t extent = extent_of(*this, axis, "slice");
  if (begin < 0 || end < begin || end > extent || step < 1)
    throw UsageError(
        fmt::format("slice: every {}-th of [{}, {}) of axis {}, which has {}; expected 0 <= begin <= end <= {}, step >= 1", step,
                    begin, end, axis, extent, extent));
  return view_of(*this, axis, begin, (end - begin) / step + ((end - begin) % step != 0 ? 1 : 0), step, "slice", where);
}

DTensor DTensor::select(int axis, int64_t index, Where where) const {
  const int64_t extent = extent_of(*this, axis, "select");
  if (index < 0 || index >= extent)
    throw UsageError(fmt::format("select: index {} of axis {}, which has {}", index, axis, extent));
  const int dim = dim_that_cuts(info_, axis, "select");
  if (dim < 0) return view_of(*this, axis, index, 1, 0, "select", where);
  std::vector<PlacementSpec> specs = info_.placement().dim_specs();
  specs[static_cast<size_t>(dim)] = PlacementSpec::replica();
  return slice(axis, index, index + 1, 1, where).redistribute(Placement(std::move(specs)), {}, where).select(axis, 0, where);
}

DTensor DTensor::transpose(std::vector<int> axes, Where where) const {
  const size_t ndim = info_.tensor_sinfo().shape.size();
  if (axes.empty())
    for (size_t axis = ndim; axis-- > 0;) axes.push_back(static_cast<int>(axis));
  std::vector<int> each(ndim);
  std::iota(each.begin(), each.end(), 0);
  if (!std::ranges::is_permutation(axes, each))
    throw UsageError(fmt::format("transpose: axes ({}) of a tensor of shape {}; give each axis once", fmt::join(axes, ", "),
                                 to_string(info_.tensor_sinfo().shape)));
  TensorStructInfo whole = info_.tensor_sinfo();
  std::vector<int> position(ndim);
  for (size_t i = 0; i < ndim; ++i) {
    whole.shape[i] = info_.tensor_sinfo().shape[static_cast<size_t>(axes[i])];
    position[static_cast<size_t>(axes[i])] = static_cast<int>(i);
  }
  std::vector<PlacementSpec> specs = info_.placement().dim_specs();
  for (PlacementSpec& spec : specs)
    if (spec.cuts()) spec = with_axis(spec, position[static_cast<size_t>(spec.axis())]);
  DTensorStructInfo result(whole, info_.device_mesh(), Placement(std::move(specs)));
  const List args{parts_, to_values(info_), Shape(axes.begin(), axes.end())};
  return {Access::controller(parts_, "transpose").call_builtin("part_transpose", args, where), std::move(result)};
}

DTensor empty(Session& session, const DTensorStructInfo& info, Where where) { return new_tensor(session, info, {}, where); }
DTensor zeros(Session& session, const DTensorStructInfo& info, Where where) { return full(session, info, 0, where); }
DTensor full(Session& session, const DTensorStructInfo& info, const Value& value, Where where) {
  return new_tensor(session, info, to_element(value, info.tensor_sinfo().dtype), where);
}
DTensor random(Session& session, const DTensorStructInfo& info, int64_t seed, Where where) {
  check_random(info.tensor_sinfo().dtype);
  return new_tensor(session, info, seed, where);
}

void register_new_parts() {
  register_global_func("runtime.disco.new_part", new_part, {.override_existing = true});
  register_global_func("runtime.disco.part_transpose", part_transpose, {.override_existing = true});
  register_global_func("runtime.disco.part_view", part_view, {.override_existing = true});
}

}  // namespace tutti::distributed

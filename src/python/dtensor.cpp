// Tensors whose parts lie on workers, and functions on their parts.
#include "python/dtensor.h"

#include <fmt/format.h>
#include <pybind11/stl.h>

#include <string>
#include <utility>
#include <vector>

#include "python/errors.h"
#include "python/gil.h"
#include "python/object.h"
#include "python/py_session.h"
#include "python/where.h"

namespace tutti::python {

using namespace tutti::distributed;
using namespace py::literals;

Placement to_placement(py::handle object) {
  if (py::isinstance<py::str>(object)) return Placement::from_text(to_utf8(object));
  if (!py::isinstance<Placement>(object))
    throw UsageError(fmt::format("expected a Placement or its text, such as 'S[0], R', got {}", type_name(object)));
  return object.cast<Placement>();
}

namespace {

py::tuple from_block(const Block& block) { return py::make_tuple(from_shape(block.shape), from_shape(block.offset)); }

DTensorStructInfo to_info(const py::object& shape, const DeviceMesh& mesh, const py::object& placement, const py::object& dtype) {
  return {{to_shape(shape), to_dtype(dtype)}, mesh, to_placement(placement)};
}

PyDTensor distribute_array(PySession& session, const py::object& array, const DeviceMesh& mesh, const py::object& placement) {
  const Where where = here();
  const Placement specs = to_placement(placement);
  const Tensor from = session.session().is_recording() ? to_tensor(array) : to_contiguous_tensor(array);  // session.cpp
  return {without_gil([&] { return distributed::distribute(session.session(), from, mesh, specs, where); }),
          session.ref({}).about};
}

/// x[:, 2:5], x[..., 0]: one slice or index of an axis after another.
PyDTensor get_item(const PyDTensor& self, const py::object& key) {
  const Where where = here();
  py::list items(PyTuple_Check(key.ptr()) ? py::reinterpret_borrow<py::object>(key) : py::make_tuple(key));
  const auto is_ellipsis = [](py::handle item) { return item.is(py::ellipsis()); };
  const size_t ndim = self.tensor.info().tensor_sinfo().shape.size();
  size_t ellipses = 0, axes = 0;
  for (const py::handle item : items) is_ellipsis(item) ? ++ellipses : ++axes;
  if (ellipses > 1 || axes > ndim)
    throw UsageError(fmt::format("[]: {} of a DTensor of {} axes", std::string(py::repr(key)), ndim));
  DTensor tensor = self.tensor;
  int axis = 0;
  for (const py::handle item : items) {
    if (is_ellipsis(item)) {
      axis += static_cast<int>(ndim - axes);
      continue;
    }
    const int64_t extent = tensor.info().tensor_sinfo().shape[static_cast<size_t>(axis)];
    if (PySlice_Check(item.ptr())) {
      py::ssize_t begin = 0, end = 0, step = 0;
      if (PySlice_Unpack(item.ptr(), &begin, &end, &step) < 0) throw py::error_already_set();
      PySlice_AdjustIndices(extent, &begin, &end, step);
      if (step < 0) throw UsageError(fmt::format("[]: a DTensor can't be sliced backwards: {}", std::string(py::repr(key))));
      if (begin != 0 || end != extent || step != 1) tensor = tensor.slice(axis, begin, std::max(begin, end), step, where);
      ++axis;
    } else if (PyIndex_Check(item.ptr()) && !PySequence_Check(item.ptr()) && !PyBool_Check(item.ptr()) &&
               !type_name(item).starts_with("numpy.bool")) {
      const int64_t index = to_shape(py::reinterpret_borrow<py::object>(item), "[]").front();
      if (index < -extent || index >= extent) {
        PyErr_SetString(PyExc_IndexError, fmt::format("index {} of axis {}, which has {}", index, axis, extent).c_str());
        throw py::error_already_set();
      }
      tensor = tensor.select(axis, index < 0 ? index + extent : index, where);
    } else {
      throw UsageError(fmt::format("[]: a DTensor takes ints, slices and ..., got {}", type_name(item)));
    }
  }
  return {tensor, self.about};
}

/// As numpy's: axes one by one, or all in a tuple; those below 0 count from the last.
PyDTensor transposed(const PyDTensor& self, const py::args& given) {
  const Where where = here();
  py::object axes = given;
  if (given.size() == 1 && !PyIndex_Check(py::object(given[0]).ptr())) axes = given[0];
  std::vector<int> order;
  const int64_t ndim = std::ssize(self.tensor.info().tensor_sinfo().shape);
  if (!axes.is_none())
    for (const int64_t axis : to_shape(axes, "transpose")) order.push_back(static_cast<int>(axis < 0 ? axis + ndim : axis));
  return {self.tensor.transpose(std::move(order), where), self.about};
}

/// ShardMap, and how Python hands on what it returns.
struct PyShardMap {
  ShardMap map;
  bool returns_one = false, returns_tensors = true;
  std::shared_ptr<const About> about;
};

std::vector<Placement> to_placements(const py::object& object) {
  std::vector<Placement> placements;
  for (const py::handle each : object) placements.push_back(to_placement(each));
  return placements;
}

bool is_one_placement(const py::object& object) { return py::isinstance<py::str>(object) || py::isinstance<Placement>(object); }

PyShardMap make_shard_map(PySession& session, const Ref& func, const DeviceMesh& mesh, const py::object& in_placements,
                          const py::object& out_placements) {
  std::vector<std::optional<Placement>> in;
  for (const auto& [name, given] : {std::pair("in_placements", in_placements), {"out_placements", out_placements}})
    if (!is_one_placement(given) && !PyList_Check(given.ptr()) && !PyTuple_Check(given.ptr()) &&
        !(given.is_none() && given.is(out_placements)))
      throw UsageError(fmt::format("shard_map: {}: expected a list of placements, or one, got {}", name, type_name(given)));
  if (is_one_placement(in_placements)) in.emplace_back(to_placement(in_placements));
  else
    for (const py::handle each : in_placements) in.push_back(each.is_none() ? std::nullopt : std::optional(to_placement(each)));
  const bool returns_one = is_one_placement(out_placements), returns_tensors = !out_placements.is_none();
  std::vector<Placement> out;
  if (returns_one) out.push_back(to_placement(out_placements));
  else if (returns_tensors) out = to_placements(out_placements);
  return {ShardMap(func.dref, mesh, std::move(in), std::move(out)), returns_one, returns_tensors, session.ref({}).about};
}

std::vector<ShardMap::Argument> to_arguments(const py::iterable& objects) {
  std::vector<ShardMap::Argument> arguments;
  for (const py::handle object : objects) {
    if (py::isinstance<PyDTensor>(object)) arguments.emplace_back(object.cast<const PyDTensor&>().tensor);
    else arguments.emplace_back(to_value(object));
  }
  return arguments;
}

PyDTensor map_parts_of(const std::string& function, const py::sequence& args, const DTensorStructInfo& info) {
  const Where where = here();
  std::shared_ptr<const About> about;
  for (const py::handle arg : args)
    if (!about && py::isinstance<PyDTensor>(arg)) about = arg.cast<const PyDTensor&>().about;
  return {map_parts(function, to_arguments(args), info, where), about};
}

py::object call_shard_map(const PyShardMap& self, const py::args& args, const py::object& out_sinfos, const py::object& seconds) {
  const Where where = here();
  const auto values = to_arguments(args);
  if (!self.returns_tensors) {
    if (!out_sinfos.is_none())
      throw UsageError("shard_map: out_sinfos, but out_placements is None: the function returns no tensors");
    return to_ref({self.map.call(values, where), self.about});
  }
  std::vector<TensorStructInfo> sinfos;
  if (!out_sinfos.is_none())
    for (const py::handle each : PyList_Check(out_sinfos.ptr()) || PyTuple_Check(out_sinfos.ptr())
                                     ? py::reinterpret_borrow<py::tuple>(py::tuple(out_sinfos))
                                     : py::make_tuple(out_sinfos)) {
      if (!py::isinstance<TensorStructInfo>(each))
        throw UsageError(
            fmt::format("shard_map: out_sinfos: expected a TensorStructInfo for each result, got {}", type_name(each)));
      sinfos.push_back(each.cast<TensorStructInfo>());
    }
  const auto timeout = to_timeout(seconds.is_none() ? std::nullopt : std::optional(py::float_(seconds).cast<double>()));
  const auto tensors = without_gil([&] { return self.map(values, sinfos, timeout, where); });
  if (self.returns_one) return py::cast(PyDTensor{tensors.front(), self.about});
  py::list result;
  for (const DTensor& tensor : tensors) result.append(PyDTensor{tensor, self.about});
  return result;
}

void bind_shard_map(py::module_& module) {
  py::class_<PyShardMap>(
      module, "ShardMap",
      "A function on the parts of DTensors: session.shard_map makes it. Calling it redistributes the arguments "
      "that do not lie so, calls the function on each worker of the mesh, and makes DTensors of what it returns.")
      .def(py::init(&make_shard_map), "session"_a, "func"_a, "mesh"_a, "in_placements"_a, "out_placements"_a)
      .def_property_readonly("mesh", [](const PyShardMap& self) { return self.map.mesh(); })
      .def("__call__", &call_shard_map, py::kw_only(), "out_sinfos"_a = py::none(), "timeout"_a = py::none(),
           "out_sinfos: a TensorStructInfo for each of out_placements. Without them the call waits: only the parts say how large "
           "the tensors are.");
  py::class_<ShardContext>(module, "ShardContext", "What a function that a ShardMap calls can ask about its place.")
      .def_readonly("mesh", &ShardContext::mesh)
      .def_property_readonly("coordinate", [](const ShardContext& self) { return from_shape(self.coordinate); })
      .def_readonly("args", &ShardContext::args, "A DTensorStructInfo for each argument; None: it is no DTensor.")
      .def(
          "local", [](const ShardContext& self, size_t arg) { return from_block(self.local(arg)); }, "arg"_a,
          "Shape and offset of this worker's part of that argument.")
      .def(
          "comm",
          [](const ShardContext& self, const py::object& dim) {
            const bool is_name = py::isinstance<py::str>(dim);
            if (!is_name && !py::isinstance<py::int_>(dim))
              throw UsageError(fmt::format("comm: expected a mesh dimension's number or name, got {}", type_name(dim)));
            const std::string name = is_name ? to_utf8(dim) : std::string();
            const int number = is_name ? 0 : dim.cast<int>();
            return without_gil([&] { return is_name ? self.comm(name) : self.comm(number); });
          },
          "dim"_a, "The workers along a mesh dimension, by its number or name, as a Comm.");
  module.def(
      "shard_context", [] { return shard_context(); }, "The ShardContext of the function that this thread runs.");
}

}  // namespace

void bind_dtensor(py::module_& module) {
  py::class_<PyDTensor>(
      module, "DTensor",
      "A tensor whose parts lie on the workers of a mesh. `parts`: a DRef of tensors that the workers have, each "
      "of the shape that info.local(worker) says. As an argument of a worker function it is each worker's part.")
      .def(py::init([](const Ref& parts, const DTensorStructInfo& info) {
             return PyDTensor{{parts.dref, info}, parts.about};
           }),
           "parts"_a, "info"_a)
      .def_static(
          "from_local",
          [](const Ref& parts, const DeviceMesh& mesh, const py::object& placement, const std::optional<double>& timeout) {
            const Where where = here();
            const Placement specs = to_placement(placement);
            return PyDTensor{
                without_gil([&] { return DTensor::from_local(parts.dref, mesh, specs, to_timeout(timeout), where); }),
                parts.about};
          },
          "parts"_a, "mesh"_a, "placement"_a, "timeout"_a = py::none(),
          "A DTensor of parts whose shapes say how large it is. Waits. Parts of an axis whose sizes are not those of S[a] make "
          "it "
          "ragged.")
      .def_property_readonly("info", [](const PyDTensor& self) { return self.tensor.info(); })
      .def_property_readonly("shape", [](const PyDTensor& self) { return from_shape(self.tensor.info().tensor_sinfo().shape); })
      .def_property_readonly("ndim", [](const PyDTensor& self) { return self.tensor.info().tensor_sinfo().shape.size(); })
      .def_property_readonly("dtype", [](const PyDTensor& self) { return from_dtype(self.tensor.info().tensor_sinfo().dtype); })
      .def_property_readonly("mesh", [](const PyDTensor& self) { return self.tensor.info().device_mesh(); })
      .def_property_readonly("placement", [](const PyDTensor& self) { return self.tensor.info().placement(); })
      .def_property_readonly(
          "parts",
          [](const PyDTensor& self) {
            return Ref{self.tensor.parts(), self.about};
          },
          "A DRef: each worker's part.")
      .def(
          "local", [](const PyDTensor& self, int64_t worker) { return from_block(self.tensor.local(worker)); }, "worker"_a,
          "Shape and offset of the part that this worker holds.")
      .def(
          "redistribute",
          [](const PyDTensor& self, const py::object& text, std::optional<DeviceMesh> mesh, bool relabel) {
            const DTensorStructInfo& info = self.tensor.info();
            const Placement placement = to_placement(text);
            if (relabel)
              mesh = without_gil([&] {
                return relabelled(info, {info.tensor_sinfo(), mesh.value_or(info.device_mesh()), placement});
              });
            return PyDTensor{self.tensor.redistribute(placement, mesh, here()), self.about};
          },
          "placement"_a, "mesh"_a = py::none(), "relabel"_a = false,
          "The same values in other places, on another mesh if one is given. Each worker receives what it lacks. "
          "placement: a Placement, or its text. relabel: the mesh may have its workers in another order, so that the fewest "
          "bytes "
          "move.")
      .def(
          "full",
          [](const PyDTensor& self, const std::optional<double>& timeout) {
            const Where where = here();
            return to_python(without_gil([&] { return self.tensor.full(to_timeout(timeout), where); }));
          },
          "timeout"_a = py::none(), "All of it, as a Tensor of the controller's. Synchronising.")
      .def(
          "gather_to_worker0",
          [](const PyDTensor& self) {
            return Ref{self.tensor.gather_to_worker0(here()), self.about};
          },
          "A DRef: all of it on worker 0; None on the others.")
      .def("__getitem__", &get_item, "key"_a,
           "A part of it, by ints, slices and ... . Slices are views of the same memory, of a cut axis with uneven parts; so are "
           "ints, but of a cut axis they are copies.")
      .def("transpose", &transposed,
           "The same elements with the axes in this order; none are given: in reverse order. Parts are views; nothing moves.")
      .def_property_readonly(
          "T", [](const PyDTensor& self) { return transposed(self, py::args()); }, "transpose()")
      .def("__len__",
           [](const PyDTensor& self) {
             const Shape& shape = self.tensor.info().tensor_sinfo().shape;
             if (shape.empty()) throw py::type_error("len() of a DTensor without axes");
             return shape.front();
           })
      .def("__array__",
           [](const PyDTensor&, const py::args&, const py::kwargs&) -> py::object {
             throw py::type_error("a DTensor is no array: x.full() is all of it, x.redistribute() puts it elsewhere");
           })
      .def("__bool__",
           [](const PyDTensor&) -> bool {
             throw py::type_error(
                 "a DTensor is neither true nor false; use x.item(), x.any(), x.all(), or x.full() for all of it");
           })
      .def("__repr__", [](const PyDTensor& self) { return fmt::format("DTensor({})", to_string(self.tensor.info())); });
  module.def("distribute", &distribute_array, "session"_a, "array"_a, "mesh"_a, "placement"_a,
             "Parts of an array, which may be changed on return. placement: a Placement, or its text.");
  module.def(
      "empty",
      [](PySession& session, const py::object& shape, const DeviceMesh& mesh, const py::object& placement,
         const py::object& dtype) {
        return PyDTensor{empty(session.session(), to_info(shape, mesh, placement, dtype), here()), session.ref({}).about};
      },
      "session"_a, "shape"_a, "mesh"_a, "placement"_a, "dtype"_a = "float32", "A new DTensor, uninitialised.");
  module.def(
      "full",
      [](PySession& session, const py::object& shape, const py::object& value, const DeviceMesh& mesh,
         const py::object& placement, const py::object& dtype) {
        return PyDTensor{full(session.session(), to_info(shape, mesh, placement, dtype), to_value(value), here()),
                         session.ref({}).about};
      },
      "session"_a, "shape"_a, "value"_a, "mesh"_a, "placement"_a, "dtype"_a = "float32", "A new DTensor, each element `value`.");
  module.def(
      "zeros",
      [](PySession& session, const py::object& shape, const DeviceMesh& mesh, const py::object& placement,
         const py::object& dtype) {
        return PyDTensor{zeros(session.session(), to_info(shape, mesh, placement, dtype), here()), session.ref({}).about};
      },
      "session"_a, "shape"_a, "mesh"_a, "placement"_a, "dtype"_a = "float32", "A new DTensor of zeros.");
  module.def(
      "random",
      [](PySession& session, const py::object& shape, const DeviceMesh& mesh, const py::object& placement,
         const py::object& dtype, int64_t seed) {
        return PyDTensor{random(session.session(), to_info(shape, mesh, placement, dtype), seed, here()), session.ref({}).about};
      },
      "session"_a, "shape"_a, "mesh"_a, "placement"_a, "dtype"_a = "float32", "seed"_a = 0,
      "A new DTensor of random values, which do not depend on mesh and placement: floats from 0 to below 1, integers of all "
      "bits.");
  module.def("explain", &explain, "from_info"_a, "to_info"_a,
             "What redistribute does: its exchanges, a line each, with the bytes that change workers, and the memory that this "
             "takes.");
  module.def("bytes_moved", &bytes_moved, "from_info"_a, "to_info"_a,
             "The bytes that change workers when redistribute does that.");
  module.def("relabelled", &relabelled, "from_info"_a, "to_info"_a, py::call_guard<py::gil_scoped_release>(),
             "The mesh of to_info with its workers in the order in which redistribute moves the fewest bytes.");
  module.def("peak_bytes", &peak_bytes, "from_info"_a, "to_info"_a,
             "The bytes of host memory that this takes at most on one worker, besides its part, with the result in them.");
  module.def("map_parts", &map_parts_of, "function"_a, "args"_a, "info"_a,
             "A DTensor whose parts are made by a function that every worker has registered under this name: each worker of "
             "info's mesh calls it with its own parts of the DTensors among `args`, as they lie, and holds what it returns "
             "against `info`. Does not wait.");
  bind_shard_map(module);
}

}  // namespace tutti::python

// tutti.distributed: the words of tutti/distributed.h.
#include <fmt/format.h>
#include <pybind11/operators.h>
#include <pybind11/stl.h>

#include "python/dtensor.h"
#include "python/errors.h"
#include "python/object.h"
#include "tutti/distributed.h"

namespace tutti::python {
namespace {

using namespace tutti::distributed;
using namespace py::literals;

std::string shown(const PlacementSpec& spec) {
  switch (spec.kind()) {
    case PlacementSpecKind::kReplica: return "PlacementSpec.replica()";
    case PlacementSpecKind::kPartial: return fmt::format("PlacementSpec.partial('{}')", spec.op());
    case PlacementSpecKind::kSharding: return fmt::format("PlacementSpec.sharding({})", spec.axis());
    case PlacementSpecKind::kRagged:
      return fmt::format("PlacementSpec.ragged({}, [{}])", spec.axis(), fmt::join(spec.sizes(), ", "));
  }
  return {};
}
std::string shown(const Placement& placement) { return fmt::format("Placement.from_text('{}')", to_string(placement)); }
std::string shown(const TensorStructInfo& info) {
  return fmt::format("TensorStructInfo({}, '{}')", to_string(info.shape), to_string(info.dtype));
}

DeviceMesh make_mesh(const py::object& shape, const py::object& device_ids, const py::object& names) {
  const Shape extents = to_shape(shape, "a mesh's shape");
  Shape ids = device_ids.is_none() ? Shape() : to_shape(device_ids, "device_ids");
  if (!device_ids.is_none() && ids.empty()) throw UsageError("DeviceMesh: device_ids is empty; None means 0, 1, ...");
  std::vector<std::string> texts;
  if (py::isinstance<py::str>(names)) throw UsageError("DeviceMesh: names is a str; expected a list, a name for each dimension");
  if (!names.is_none())
    for (const py::handle name : names) {
      if (!py::isinstance<py::str>(name)) throw UsageError(fmt::format("DeviceMesh: a name is a str, got {}", type_name(name)));
      texts.push_back(to_utf8(name));
    }
  return DeviceMesh(extents, std::move(ids), std::move(texts));
}

template <class T>
void bind_as_value(py::class_<T>& type) {
  type.def(py::self == py::self).def("__hash__", [](const T& self) { return std::hash<T>()(self); });
}

}  // namespace

void bind_distributed(py::module_& parent) {
  py::module_ module = parent.def_submodule("distributed", "Where the parts of sharded tensors lie.");
  auto mesh =
      py::class_<DeviceMesh>(module, "DeviceMesh",
                             "Workers in an n-d arrangement. `device_ids`: worker ids in row-major order, a list or a "
                             "range; None: 0, 1, ... `names`: of the mesh dimensions.")
          .def(py::init(&make_mesh), "shape"_a, "device_ids"_a = py::none(), "names"_a = py::none())
          .def_property_readonly("shape", [](const DeviceMesh& self) { return from_shape(self.shape()); })
          .def_property_readonly("ndim", &DeviceMesh::ndim)
          .def_property_readonly("size", &DeviceMesh::size, "Workers.")
          .def_property_readonly("device_ids", &DeviceMesh::device_ids)
          .def_property_readonly("names", [](const DeviceMesh& self) { return py::tuple(py::cast(self.names())); })
          .def("dim", &DeviceMesh::dim, "name"_a, "The number of the mesh dimension that has this name.")
          .def(
              "worker", [](const DeviceMesh& self, const py::object& coordinate) { return self.worker(to_shape(coordinate)); },
              "coordinate"_a, "The worker in this place.")
          .def(
              "coordinate",
              [](const DeviceMesh& self, int64_t worker) -> py::object {
                const auto found = self.coordinate(worker);
                return found ? from_shape(*found) : py::object(py::none());
              },
              "worker"_a, "The worker's place; None: it is not in the mesh.")
          .def("peers", &DeviceMesh::peers, "worker"_a, "dim"_a,
               "The workers that differ from this one in no other mesh dimension, itself included: for worker.comm.")
          .def("__repr__", [](const DeviceMesh& self) { return to_string(self); });
  bind_as_value(mesh);
  mesh.def(py::pickle([](const DeviceMesh& self) { return py::make_tuple(self.shape(), self.device_ids(), self.names()); },
                      [](const py::tuple& state) {
                        return DeviceMesh(state[0].cast<Shape>(), state[1].cast<std::vector<int64_t>>(),
                                          state[2].cast<std::vector<std::string>>());
                      }));

  auto spec = py::class_<PlacementSpec>(module, "PlacementSpec", "What one mesh dimension does with a tensor.")
                  .def_static("sharding", &PlacementSpec::sharding, "axis"_a,
                              "The axis is cut into as many parts as the mesh dimension has workers; sizes differ by at most 1.")
                  .def_static("replica", &PlacementSpec::replica, "Each worker along the mesh dimension has the same.")
                  .def_static("partial", &PlacementSpec::partial, "op"_a = "sum",
                              "The value is the sum (prod, min, max, avg) over the workers along the mesh dimension.")
                  .def_static("ragged", &PlacementSpec::ragged, "axis"_a, "sizes"_a, "As sharding, with parts of these sizes.")
                  .def_property_readonly(
                      "kind",
                      [](const PlacementSpec& self) {
                        return py::module_::import("tutti.distributed").attr("PlacementSpecKind")(static_cast<int>(self.kind()));
                      })
                  .def_property_readonly("axis", &PlacementSpec::axis, "Of the tensor; -1: none is cut.")
                  .def_property_readonly("op", &PlacementSpec::op, "Empty unless partial.")
                  .def_property_readonly("sizes", &PlacementSpec::sizes, "Empty unless ragged.")
                  .def("__str__", [](const PlacementSpec& self) { return to_string(self); })
                  .def("__repr__", [](const PlacementSpec& self) { return shown(self); });
  bind_as_value(spec);
  spec.def(py::pickle([](const PlacementSpec& self) { return py::str(to_string(self)); },
                      [](const py::str& text) { return Placement::from_text(text.cast<std::string>()).dim_specs().front(); }));

  auto placement = py::class_<Placement>(module, "Placement", "What each dimension of a mesh does with a tensor.")
                       .def(py::init<std::vector<PlacementSpec>>(), "dim_specs"_a)
                       .def_static("from_text", &Placement::from_text, "text"_a, "Such as 'S[0], R, P(max), S[1](3, 0, 5)'.")
                       .def_property_readonly("dim_specs", &Placement::dim_specs)
                       .def("__str__", [](const Placement& self) { return to_string(self); })
                       .def("__repr__", [](const Placement& self) { return shown(self); });
  bind_as_value(placement);
  placement.def(py::pickle([](const Placement& self) { return py::str(to_string(self)); },
                           [](const py::str& text) { return Placement::from_text(text.cast<std::string>()); }));

  auto tensor =
      py::class_<TensorStructInfo>(module, "TensorStructInfo", "A tensor as a whole: shape and dtype.")
          .def(py::init([](const py::object& shape, const py::object& dtype) {
                 TensorStructInfo info{to_shape(shape), to_dtype(dtype)};
                 size_bytes(info.shape, info.dtype);
                 return info;
               }),
               "shape"_a, "dtype"_a = "float32")
          .def_property_readonly("shape", [](const TensorStructInfo& self) { return from_shape(self.shape); })
          .def_property_readonly("dtype", [](const TensorStructInfo& self) { return from_dtype(self.dtype); })
          .def_property_readonly("ndim", [](const TensorStructInfo& self) { return self.shape.size(); })
          .def_property_readonly("nbytes", [](const TensorStructInfo& self) { return size_bytes(self.shape, self.dtype); })
          .def(py::self == py::self)
          .def("__hash__", [](const TensorStructInfo& self) { return std::hash<std::string>()(shown(self)); })
          .def("__repr__", [](const TensorStructInfo& self) { return shown(self); });
  tensor.def(py::pickle([](const TensorStructInfo& self) { return py::make_tuple(self.shape, to_string(self.dtype)); },
                        [](const py::tuple& state) {
                          return TensorStructInfo{state[0].cast<Shape>(), parse_dtype(state[1].cast<std::string>())};
                        }));

  auto info = py::class_<DTensorStructInfo>(module, "DTensorStructInfo", "A tensor, and where its parts lie.")
                  .def(py::init([](const TensorStructInfo& tensor, const DeviceMesh& mesh, const py::object& placement) {
                         return DTensorStructInfo(tensor, mesh, to_placement(placement));
                       }),
                       "tensor_sinfo"_a, "device_mesh"_a, "placement"_a)
                  .def_property_readonly("tensor_sinfo", &DTensorStructInfo::tensor_sinfo)
                  .def_property_readonly("device_mesh", &DTensorStructInfo::device_mesh)
                  .def_property_readonly("placement", &DTensorStructInfo::placement)
                  .def(
                      "local",
                      [](const DTensorStructInfo& self, int64_t worker) {
                        const Block block = self.local(worker);
                        return py::make_tuple(from_shape(block.shape), from_shape(block.offset));
                      },
                      "worker"_a, "Shape and offset of the part that this worker holds.")
                  .def("__repr__", [](const DTensorStructInfo& self) {
                    return fmt::format("DTensorStructInfo({}, {}, {})", shown(self.tensor_sinfo()), to_string(self.device_mesh()),
                                       shown(self.placement()));
                  });
  bind_as_value(info);
  info.def(py::pickle(
      [](const DTensorStructInfo& self) { return py::make_tuple(self.tensor_sinfo(), self.device_mesh(), self.placement()); },
      [](const py::tuple& state) {
        return DTensorStructInfo(state[0].cast<TensorStructInfo>(), state[1].cast<DeviceMesh>(), state[2].cast<Placement>());
      }));
  module.def("show", &show, "info"_a, "Who holds what: a table, a line for each worker of the mesh.");
  bind_dtensor(module);
  bind_checkpoint(module);
}

}  // namespace tutti::python

// Tensors whose parts lie on workers, as Python's objects: the handle is PyDTensor (python/ref_object.h).
#pragma once

#include <pybind11/pybind11.h>

#include "tutti/distributed.h"

namespace tutti::python {

namespace py = pybind11;

distributed::Placement to_placement(py::handle object);  ///< a Placement, or its text
void bind_dtensor(py::module_& module);
void bind_checkpoint(py::module_& module);

}  // namespace tutti::python

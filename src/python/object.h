// Python objects as tutti's values, and back.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "tutti/function.h"
#include "tutti/value.h"

namespace tutti::python {

namespace py = pybind11;

/// None, bool, int, float, str, bytes, Shape, DataType, Device, DRef, Tensor and arrays (numpy's, or with __dlpack__; without a
/// copy), lists and tuples of these; functions become functions, everything else an opaque object, dicts such that travel as
/// what they hold. With the lock.
/// @throws UsageError  an int beyond 64 bits, an array whose memory can't be told
Value to_value(py::handle object);
py::object to_python(const Value& value);

std::string to_utf8(py::handle str);  ///< @throws UsageError  it has surrogates, which UTF-8 can't carry
DType to_dtype(py::handle object);    ///< "float32", np.float32, np.dtype, DataType.  @throws UsageError
Shape to_shape(py::handle object, const char* what = "a shape");  ///< an int or a sequence of ints.  @throws UsageError
Device to_device(py::handle object);
std::optional<Device> to_device_or_none(py::handle object);
py::object from_dtype(DType dtype);
py::object from_shape(const Shape& shape);

/// A tensor on the array's memory, which it keeps alive. `must_write`: the array is written to.
/// @throws UsageError  no array, other byte order, strides that are no multiple of an element, read-only
Tensor to_tensor(py::handle object, bool must_write = false);
Tensor to_contiguous_tensor(py::handle object);  ///< row-major, copied only if it isn't
py::object to_numpy(const py::object& tensor);   ///< an array on the tensor's memory

/// A Python callable as tutti's function.
Function to_function(std::string name, py::handle callable, Function::Options options = {});
py::object call_function(const Function& function, const py::args& args);

struct PackedFunc {  ///< a function of this process, as Python sees it
  Function function;
};
struct OpaqueObject {  ///< an object of C++ or of a module, as Python sees it
  Opaque opaque;
};

void bind_values(py::module_& module);
void bind_tensor(py::module_& module);
void bind_refs(py::module_& module);
void bind_session(py::module_& module);
void bind_program(py::module_& module);
void bind_worker(py::module_& module);
void bind_distributed(py::module_& parent);
void give_signatures(py::handle module);  ///< to the functions that the others have bound

}  // namespace tutti::python

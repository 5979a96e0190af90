// The extension behind the package tutti: src/python/tutti.
#include "python/gil.h"
#include "python/object.h"
#include "tutti/function.h"
#include "tutti/version.h"

PYBIND11_MODULE(_core, module) {
  using namespace tutti::python;
  bind_errors(module);
  bind_values(module);
  bind_tensor(module);
  bind_session(module);
  bind_worker(module);
  set_interpreter_hooks();
  tutti::register_global_func(
      "runtime.disco._import_python_module",
      [](const std::string& name) {
        const WithGil gil;
        if (!py::reinterpret_steal<py::object>(PyImport_ImportModule(name.c_str()))) throw_python_error();
      },
      {.override_existing = true});
}

// The extension behind the package tutti: src/python/tutti.
#include "python/errors.h"
#include "python/gil.h"
#include "python/object.h"
#include "python/py_job.h"
#include "tutti/version.h"

PYBIND11_MODULE(_core, module) {
  using namespace tutti::python;
  module.attr("__version__") = std::string(tutti::version());
  bind_errors(module);
  bind_values(module);
  bind_tensor(module);
  bind_refs(module);
  bind_session(module);
  bind_program(module);
  bind_job(module);
  bind_worker(module);
  bind_distributed(module);
  give_signatures(module);
  give_signatures(module.attr("worker"));
  give_signatures(module.attr("distributed"));
  set_interpreter_hooks(PySys_GetObject("tutti_embedded") == nullptr);
}

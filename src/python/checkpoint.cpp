// Saving and loading DTensors.
#include "tutti/checkpoint.h"

#include <fmt/format.h>
#include <pybind11/stl.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "python/dtensor.h"
#include "python/errors.h"
#include "python/gil.h"
#include "python/object.h"
#include "python/py_session.h"
#include "python/where.h"

namespace tutti::python {

using namespace tutti::distributed;
using namespace py::literals;

namespace {

/// A Saving; it may wait when it goes.
struct PySaving {
  explicit PySaving(Saving from) : saving(std::move(from)) {}
  PySaving(PySaving&&) = default;
  ~PySaving() {
    if (saving) without_gil([this] { saving.reset(); });
  }
  std::optional<Saving> saving;
};

std::string to_path(const py::object& path) {
  const py::object text = py::module_::import("os").attr("fspath")(path);
  if (!py::isinstance<py::str>(text))
    throw UsageError(fmt::format("expected a path as str or os.PathLike, got {}", type_name(path)));
  return to_utf8(text);
}

std::map<std::string, DTensor> to_tensors(const py::object& object) {
  if (!PyDict_Check(object.ptr()))
    throw UsageError(fmt::format("save: expected a dict of DTensors by name, got {}", type_name(object)));
  std::map<std::string, DTensor> tensors;
  for (const auto& [name, tensor] : py::reinterpret_borrow<py::dict>(object)) {
    if (!py::isinstance<py::str>(name) || !py::isinstance<PyDTensor>(tensor))
      throw UsageError(
          fmt::format("save: expected a dict of DTensors by name, got {}: {}", std::string(py::repr(name)), type_name(tensor)));
    tensors.emplace(to_utf8(name), tensor.cast<const PyDTensor&>().tensor);
  }
  return tensors;
}

SaveOptions to_options(const std::optional<std::map<std::string, std::string>>& metadata, std::optional<int64_t> file_bytes,
                       bool direct) {
  SaveOptions options;
  options.direct = direct;
  if (metadata) options.metadata = *metadata;
  if (file_bytes) options.file_bytes = *file_bytes;
  return options;
}

/// Waits with a bar of the bytes that are written, if that is asked for.
template <class Wait>
void wait_with_bar(const char* what, int64_t total, bool progress, const std::function<int64_t()>& written, Wait wait) {
  if (!progress) return without_gil(wait);
  const py::object bar = py::module_::import("tutti._show").attr("BytesBar")(what, total);
  const WhileWaiting show([&] { bar.attr("update")(written()); });
  try {
    without_gil(wait);
  } catch (...) {
    bar.attr("leave")();
    throw;
  }
  bar.attr("close")();
}

void save_with_bar(PySession& session, const py::object& path, const py::object& tensors,
                   const std::optional<std::map<std::string, std::string>>& metadata, std::optional<int64_t> file_bytes,
                   const std::optional<double>& timeout, bool progress, bool direct) {
  const Where where = here();
  const std::string to = to_path(path);
  const auto values = to_tensors(tensors);
  SaveOptions options = to_options(metadata, file_bytes, direct);
  std::optional<Saving> saving;
  int64_t total = 0;
  for (const auto& [name, tensor] : values) {
    const TensorStructInfo& whole = tensor.info().tensor_sinfo();
    total += element_count(whole.shape) * whole.dtype.size_bytes();
  }
  if (progress) options.begun = [&](const Saving& begun) { saving = begun; };
  wait_with_bar(
      "save", total, progress, [&] { return saving ? saving->bytes_written() : 0; },
      [&] { save(session.session(), to, values, options, to_timeout(timeout), where); });
}

/// A function of Python's that asks what is in a file.
template <class Read>
void def_stored(py::module_& module, const char* name, Read read, const char* what) {
  module.def(
      name,
      [read](const py::object& path) {
        const std::string from = to_path(path);
        return without_gil([&] { return read(from); });
      },
      "path"_a, what);
}

/// One placement for all; or by name, of those that are wanted; or a function of name and TensorStructInfo.
ChoosePlacement to_choice(const py::object& placements, const std::map<std::string, TensorStructInfo>& stored) {
  std::map<std::string, Placement> chosen;
  if (PyDict_Check(placements.ptr())) {
    for (const auto& [key, placement] : py::reinterpret_borrow<py::dict>(placements)) {
      if (!py::isinstance<py::str>(key))
        throw UsageError(fmt::format("load: placements: expected names, got {}", type_name(key)));
      const std::string name = to_utf8(key);
      if (!stored.contains(name)) throw UsageError(fmt::format("load: no tensor is named '{}'", name));
      if (!placement.is_none()) chosen.emplace(name, to_placement(placement));
    }
  } else {
    const bool is_one = py::isinstance<py::str>(placements) || py::isinstance<Placement>(placements);
    if (!is_one && !PyCallable_Check(placements.ptr()))
      throw UsageError(
          fmt::format("load: placements: expected a placement, a dict of them by name, or a function of name and "
                      "TensorStructInfo, got {}",
                      type_name(placements)));
    for (const auto& [name, info] : stored) {
      const py::object placement = is_one ? placements : placements(name, info);
      if (!placement.is_none()) chosen.emplace(name, to_placement(placement));
    }
  }
  return [chosen = std::move(chosen)](const std::string& name, const TensorStructInfo&) {
    const auto found = chosen.find(name);
    return found == chosen.end() ? std::nullopt : std::optional(found->second);
  };
}

}  // namespace

void bind_checkpoint(py::module_& module) {
  py::class_<PySaving>(module, "Saving", "A save that is under way. Without a reference to it, it is waited for.")
      .def_property_readonly("is_done", [](const PySaving& self) { return self.saving->is_done(); })
      .def_property_readonly("total_bytes", [](const PySaving& self) { return self.saving->total_bytes(); })
      .def_property_readonly("bytes_written",
                             [](const PySaving& self) { return without_gil([&] { return self.saving->bytes_written(); }); })
      .def(
          "wait",
          [](PySaving& self, const std::optional<double>& timeout, bool progress) {
            const Where where = here();
            wait_with_bar(
                "wait", self.saving->total_bytes(), progress, [&] { return self.saving->bytes_written(); },
                [&] { self.saving->wait(to_timeout(timeout), where); });
          },
          "timeout"_a = py::none(), "progress"_a = false,
          "Until the files are there. Raises what went wrong. Synchronising. progress: a bar of tqdm's, of the bytes written.");
  module.def("save", &save_with_bar, "session"_a, "path"_a, "tensors"_a, "metadata"_a = py::none(), "file_bytes"_a = py::none(),
             "timeout"_a = py::none(), "progress"_a = false, "direct"_a = false,
             "Saves DTensors by name: .safetensors, .safetensors.index.json with files beside it, or .npy. Synchronising. "
             "progress: a bar of tqdm's, of the bytes written.");
  module.def(
      "save_async",
      [](PySession& session, const py::object& path, const py::object& tensors,
         const std::optional<std::map<std::string, std::string>>& metadata, std::optional<int64_t> file_bytes,
         const std::optional<double>& timeout, bool direct) {
        const Where where = here();
        const std::string to = to_path(path);
        const auto values = to_tensors(tensors);
        const SaveOptions options = to_options(metadata, file_bytes, direct);
        return without_gil(
            [&] { return PySaving(save_async(session.session(), to, values, options, to_timeout(timeout), where)); });
      },
      "session"_a, "path"_a, "tensors"_a, "metadata"_a = py::none(), "file_bytes"_a = py::none(), "timeout"_a = py::none(),
      "direct"_a = false,
      "The same, but waits only until the workers have copied their parts. They write while the session works on.");
  module.def(
      "load",
      [](PySession& session, const py::object& path, const DeviceMesh& mesh, const py::object& placements, bool verify,
         const std::optional<double>& timeout, bool direct) {
        const Where where = here();
        const std::string from = to_path(path);
        const auto choose = to_choice(placements, without_gil([&] { return stored_tensors(from); }));
        const auto loaded = without_gil([&] {
          return load(session.session(), from, mesh, choose, {verify, direct}, to_timeout(timeout), where);
        });
        py::dict result;
        for (const auto& [name, tensor] : loaded) result[py::str(name)] = PyDTensor{tensor, session.ref({}).about};
        return result;
      },
      "session"_a, "path"_a, "mesh"_a, "placements"_a, "verify"_a = true, "timeout"_a = py::none(), "direct"_a = false,
      "The DTensors of a file or an index, by name. placements: one for all; a dict, of those that are wanted; or a function of "
      "name and TensorStructInfo, which returns one, or None. Synchronising.");
  def_stored(module, "stored_metadata", &stored_metadata,
             "The `metadata` that was saved with a .safetensors file or an index, {str: str}.");
  def_stored(module, "stored_tensors", &stored_tensors, "The TensorStructInfo of each tensor of a file or an index, by name.");
}

}  // namespace tutti::python

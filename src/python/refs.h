// Handles to registers, as Python sees them: DRef, DPackedFunc, DModule.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>

#include "tutti/session.h"

namespace tutti::python {

namespace py = pybind11;

/// What a handle can say of its session when that is gone.
struct About {
  std::string kind;
  int num_workers = 0;
};

struct Ref {
  DRef dref;
  std::shared_ptr<const About> about;
};

const About* about_of(py::handle session);  ///< null: it is none
const Ref* as_ref(py::handle object);       ///< null: it is none
py::object to_ref(Ref ref);                 ///< a DRef
py::object to_function_ref(Ref ref);        ///< a DPackedFunc
py::object to_module_ref(Ref ref);          ///< a DModule
Ref call(const Ref& function, Args args);

void check_worker(const About& about, int worker);  ///< @throws IndexError
Timeout to_timeout(const std::optional<double>& seconds);

/// The line of Python that called tutti, good until the next call.
Where here();
/// What has been thrown on its way through Python, if it was: see bind_errors.
std::exception_ptr original_of(py::handle exception);
/// Sets what is being handled as Python's exception.
void set_python_error();
/// For where nothing can be raised: on sys.stderr. A stream that is closed, full or gone makes no difference.
void log(const char* what, const std::exception& error) noexcept;
/// In a destructor: Ctrl-C is raised again where Python goes on, another exception is told of on sys.stderr, and ends here.
void put_off(py::error_already_set& error) noexcept;

}  // namespace tutti::python

namespace pybind11::detail {

template <>
struct type_caster<tutti::python::Ref> {
  static constexpr auto name = const_name("tutti.DRef");
  bool load(handle source, bool /*convert*/) { return (ref_ = tutti::python::as_ref(source)) != nullptr; }
  template <class T>
  using cast_op_type = const tutti::python::Ref&;
  operator const tutti::python::Ref&() const { return *ref_; }  // NOLINT: pybind11's way
  static handle cast(tutti::python::Ref ref, return_value_policy /*policy*/, handle /*parent*/) {
    return tutti::python::to_ref(std::move(ref)).release();
  }

 private:
  const tutti::python::Ref* ref_ = nullptr;
};

}  // namespace pybind11::detail

// Handles to registers, as Python sees them.
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

class Ref {
 public:
  Ref(DRef ref, std::shared_ptr<const About> about) : ref_(std::move(ref)), about_(std::move(about)) {}
  const DRef& dref() const { return ref_; }
  const std::shared_ptr<const About>& about() const { return about_; }
  std::string describe(const char* type) const;

 private:
  DRef ref_;
  std::shared_ptr<const About> about_;
};
struct FunctionRef : Ref {
  using Ref::Ref;
};
struct ModuleRef : Ref {
  using Ref::Ref;
};

const Ref* as_ref(py::handle object);  ///< null: it is none
/// The line of Python that called tutti, good until the next call.
Where here();
/// What has been thrown on its way through Python, if it was: see bind_errors.
std::exception_ptr original_of(py::handle exception);

}  // namespace tutti::python

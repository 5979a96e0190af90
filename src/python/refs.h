// What handles to registers do, as Python sees them.
#pragma once

#include <optional>

#include "python/ref_object.h"

namespace tutti::python {

const About* about_of(py::handle session);  ///< null: it is none
Ref call(const Ref& function, Args args);

void check_worker(const About& about, int worker);  ///< @throws IndexError
Timeout to_timeout(const std::optional<double>& seconds);

}  // namespace tutti::python

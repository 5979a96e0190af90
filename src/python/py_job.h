#pragma once

#include <pybind11/pybind11.h>

namespace tutti::python {

/// In a script that mpirun started without `-m tutti`: rank 0 goes on, the others serve it and then end here.
void start_job();
void bind_job(pybind11::module_& module);  ///< how a program begins and ends

}  // namespace tutti::python

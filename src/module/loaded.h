#pragma once

#include <string>

#include "tutti/value.h"

namespace tutti::ffi {

class Library;

/// What load_vm_module puts into a register: a library, or the object that its vm_load_executable made; or a module of TVM's own.
/// A function of a module that is given one gets the object.
struct Module {
  Library* library;  ///< null: TVM has loaded it
  std::string path;
  Value object;
};

}  // namespace tutti::ffi

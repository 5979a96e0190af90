#pragma once

namespace tutti::detail {

// Functions of rooms that lie above. Called by register_builtins(), so that a program that links the library statically has them.
void register_module_functions();       ///< module/module.cpp
void register_distributed_functions();  ///< distributed/dtensor.cpp
void register_checkpoint_functions();   ///< checkpoint/save.cpp
void register_program_functions();      ///< program/functions.cpp

}  // namespace tutti::detail

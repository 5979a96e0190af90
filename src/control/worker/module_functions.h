#pragma once

namespace tutti::detail {

/// Registers the functions of modules, which lie above: defined in module/module.cpp. Called by register_builtins(), so that a
/// program that links the library statically has them, too.
void register_module_functions();

}  // namespace tutti::detail

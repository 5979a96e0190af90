#pragma once

namespace tutti {

/// Registers the functions under Disco's names (runtime.disco.*). Once per process; later calls do nothing.
void register_builtins();
/// Those of modules, which lie above: defined in module/module.cpp. Called by register_builtins(), so that a program that links
/// the library statically has them, too.
void register_module_functions();

}  // namespace tutti

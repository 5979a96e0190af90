#pragma once

namespace tutti {

/// Registers the functions under Disco's names (runtime.disco.*). Once per process; later calls do nothing.
void register_builtins();

}  // namespace tutti

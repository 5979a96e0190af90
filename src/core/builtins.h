#pragma once

namespace tutti::detail {

/// Registers the functions under Disco's names (runtime.disco.*). Defined in control/worker/builtins.cpp. The registry of
/// functions calls it before its first use, so that every program finds them and may override them. Later calls do nothing.
void register_builtins();

}  // namespace tutti::detail

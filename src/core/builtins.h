#pragma once

namespace tutti::detail {

/// Registers the functions under Disco's names (runtime.disco.*). Defined in control/worker/builtins.cpp. Each use of the
/// registry of functions calls it first, so that every program finds them and may override them; only the first call does
/// anything.
void register_builtins();

}  // namespace tutti::detail

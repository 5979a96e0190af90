#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/function.h"

namespace tutti::detail {

/// Registers the functions under Disco's names (runtime.disco.*). Defined in control/worker/builtins.cpp. Each use of the
/// registry of functions calls it first, so that every program finds them and may override them; only the first call does
/// anything.
void register_builtins();

/// Of all functions that are registered with such a beginning.
std::vector<std::string> function_names(std::string_view beginning);

/// Where get_global_func looks for what the registry lacks: another one, that of libtvm_ffi.
void look_further(std::optional<Function> (*find)(const std::string& name));

}  // namespace tutti::detail

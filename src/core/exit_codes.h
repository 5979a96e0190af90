#pragma once

namespace tutti::detail {

/// What a program ends with when it is not the controller's own doing.
inline constexpr int kExitUncaught = 1, kExitPreempted = 75, kExitSetUpError = 99, kExitTimedOut = 124;

/// Ends the process at once, without waiting for its threads; output that was written is not lost.
[[noreturn]] void end_process(int code);

}  // namespace tutti::detail

#pragma once

#include <cstdint>

namespace tutti::detail {

/// A wait of the controller's thread, as long as this lives: an interpreter that embeds tutti lets go of its lock
/// (tutti/interop/embed.h).
class WithoutInterpreter {
 public:
  WithoutInterpreter();
  ~WithoutInterpreter();
  WithoutInterpreter(const WithoutInterpreter&) = delete;
  WithoutInterpreter& operator=(const WithoutInterpreter&) = delete;

 private:
  void (*take_)();
};

/// Starts Python in this process, with the package tutti, unless it is there.  @throws UsageError  it can't be: why, what to do
void start_python();

/// interop::Interpreter's signal and file.
struct alignas(8) StackSignal {
  int32_t number = 0, fd = -1;
};
StackSignal stack_signal();

void check_interrupted();  ///< throws what the interpreter throws: its user wants to have it back

}  // namespace tutti::detail

#include "core/interpreter.h"

#include "tutti/interop/embed.h"

namespace tutti {
namespace {

interop::Interpreter the_interpreter;  // set before the first session

}  // namespace

void interop::set_interpreter(const Interpreter& interpreter) { the_interpreter = interpreter; }

WithoutInterpreter::WithoutInterpreter() : take_(the_interpreter.take) {
  if (the_interpreter.let_go) the_interpreter.let_go();
}
WithoutInterpreter::~WithoutInterpreter() {
  if (take_) take_();
}

void check_interrupted() {
  if (the_interpreter.interrupted) the_interpreter.interrupted();
}

}  // namespace tutti

#pragma once

#include <memory>
#include <string>
#include <utility>

#include "agreement/origin.h"
#include "core/function_parts.h"

namespace tutti::detail {

class RegisterFile;

/// What runs commands inside of one command: a recorded program. To the worker it is a function in a register.
class Replayed {
 public:
  virtual ~Replayed() = default;
  virtual Value run(Args args) = 0;
  /// The command that runs it has failed, or is skipped: what the commands that have not run write is not to be read.
  virtual void lose_results(RegisterFile& registers, int worker, Origin origin) = 0;

  virtual void forget_failure() = 0;  ///< lose_results(): as if none had run

  static Function function(std::string name, std::shared_ptr<Replayed> replayed) {
    return {std::move(name), Call{std::move(replayed)}, {}};
  }
  static std::shared_ptr<Replayed> of(const Function& function) {  ///< null: another function
    const auto* callable = FunctionParts::callable(function);
    const auto* call = callable ? callable->target<Call>() : nullptr;
    return call ? call->replayed : nullptr;
  }

 private:
  struct Call {
    std::shared_ptr<Replayed> replayed;
    Value operator()(Args args) const { return replayed->run(args); }
  };
};

}  // namespace tutti::detail

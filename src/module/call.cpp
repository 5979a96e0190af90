#include "module/call.h"

#include <fmt/format.h>

#include <typeinfo>

#include "core/type_name.h"
#include "module/check.h"
#include "module/convert.h"
#include "module/runtime.h"

namespace tutti::ffi {
namespace {

constexpr int kMostCalls = 500;  // modules and functions of ours that call each other
constexpr size_t kMostErrorText = 65536;

/// Functions that call each other without end are stopped before the stack is.
class Depth {
 public:
  explicit Depth(const std::string& name) {
    if (depth_ >= kMostCalls)
      throw ModuleError("RecursionError", fmt::format("{}: {} calls between modules and tutti inside each other", name, depth_),
                        {});
    ++depth_;
  }
  ~Depth() { --depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  static thread_local int depth_;
};
thread_local int Depth::depth_ = 0;

std::string text_of(const TVMFFIByteArray& bytes) {
  if (bytes.size <= kMostErrorText) return std::string(bytes.data, bytes.size);
  return std::string(bytes.data, kMostErrorText) + fmt::format("... ({} bytes in all)", bytes.size);
}

[[noreturn]] void throw_raised(const std::string& name, int code) {
  const ObjectRef error = move_from_raised();
  if (!error) throw ModuleError("RuntimeError", fmt::format("{} returned {} without raising an error", name, code), {});
  if (auto cause = cause_of(error.get())) std::rethrow_exception(cause);
  TVMFFIAny any{};
  any.type_index = kTVMFFIError;
  any.v_obj = error.get();
  if (std::string why = why_not_valid(any); !why.empty())
    throw ModuleError("RuntimeError", fmt::format("{} failed and raised {}", name, why), {});
  const auto& cell = cell_of<TVMFFIErrorCell>(error.get());
  throw ModuleError(text_of(cell.kind), text_of(cell.message), text_of(cell.backtrace));
}

}  // namespace

Value call_c(const std::string& name, TVMFFISafeCallType function, void* self, Args args) {
  const Depth depth(name);
  LentArgs lent(args);
  TVMFFIAny result{};
  const int code = function(self, lent.data(), lent.size(), &result);
  const int released = lent.take_back();
  if (code != 0) throw_raised(name, code);
  if (released >= 0)
    throw ModuleError(
        "RuntimeError",
        fmt::format("{} released argument {}, which it had only borrowed; its result is not used", name, released + 1), {});
  return take(result, name);
}

Function function_of(std::string name, ObjectRef object) {
  auto call = [name, object = std::move(object)](Args args) {
    return call_c(name, cell_of<TVMFFIFunctionCell>(object.get()).safe_call, object.get(), args);
  };
  return Function(std::move(name), std::move(call), {});
}

int call_from_c(const Function& function, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) noexcept {
  return guard([&] {
    const Depth depth(function.name());
    List values;
    for (int32_t i = 0; i < num_args; ++i)
      values.push_back(view(args[i], fmt::format("{}: argument {}", function.name(), i + 1)));
    *result = to_owned(function(values));
  });
}

void raise_current_exception() noexcept {
  try {
    throw;
  } catch (const ModuleError& error) {
    set_raised(make_error(error.kind(), error.what(), error.traceback(), std::current_exception()));
  } catch (const std::exception& error) {
    set_raised(make_error(type_name(typeid(error)), what_of(error), "", std::current_exception()));
  } catch (...) {
    set_raised(make_error("RuntimeError", "an exception that is not a std::exception", "", std::current_exception()));
  }
}

}  // namespace tutti::ffi

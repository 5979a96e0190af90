#include "module/raised.h"

#include <fmt/format.h>

#include <exception>
#include <typeinfo>

#include "core/demangle.h"
#include "core/type_name.h"
#include "module/check.h"
#include "module/object.h"
#include "module/runtime.h"
#include "tutti/error.h"

namespace tutti::ffi {
using namespace detail;
namespace {

constexpr size_t kMostErrorText = 65536;

std::string text_of(const TVMFFIByteArray& bytes) {
  if (bytes.size <= kMostErrorText) return std::string(bytes.data, bytes.size);
  return std::string(bytes.data, kMostErrorText) + fmt::format("... ({} bytes in all)", bytes.size);
}

/// What led to an error, a line each: "caused by KeyError: row 3".
std::string causes_of(const TVMFFIErrorCell& error) {
  constexpr int kMost = 16;
  std::string text;
  const TVMFFIErrorCell* at = &error;
  for (int i = 0; i < kMost && at->cause_chain; ++i) {
    TVMFFIAny cause{};
    cause.type_index = kTVMFFIError;
    cause.v_obj = static_cast<TVMFFIObject*>(at->cause_chain);
    if (!why_not_valid(cause).empty()) break;
    at = &cell_of<TVMFFIErrorCell>(cause.v_obj);
    text += fmt::format("\ncaused by {}: {}", text_of(at->kind), text_of(at->message));
  }
  return text;
}

}  // namespace

void throw_raised(const std::string& name, int code) {
  const ObjectRef error = move_from_raised();
  if (!error) throw ModuleError("RuntimeError", fmt::format("{} returned {} without raising an error", name, code), {});
  if (auto cause = cause_of(error.get())) std::rethrow_exception(cause);
  TVMFFIAny any{};
  any.type_index = kTVMFFIError;
  any.v_obj = error.get();
  if (std::string why = why_not_valid(any); !why.empty())
    throw ModuleError("RuntimeError", fmt::format("{} failed and raised {}", name, why), {});
  const auto& cell = cell_of<TVMFFIErrorCell>(error.get());
  throw ModuleError(text_of(cell.kind), text_of(cell.message) + causes_of(cell), text_of(cell.backtrace));
}

void raise_current_exception() noexcept {
  try {
    throw;
  } catch (const ModuleError& error) {
    set_raised(make_error(error.kind(), error.what(), error.traceback(), std::current_exception()));
  } catch (const std::exception& error) {
    set_raised(make_error(demangled(typeid(error).name()), what_of(error), "", std::current_exception()));
  } catch (...) {
    set_raised(make_error("RuntimeError", "an exception that is not a std::exception", "", std::current_exception()));
  }
}

}  // namespace tutti::ffi

#include "core/traceback.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <unwind.h>

#include <new>
#include <string_view>
#include <typeinfo>
#include <vector>

#include "core/symbols.h"

namespace tutti::detail {
namespace {

constexpr size_t kMostFrames = 128, kMostLines = 32;

thread_local struct {
  uintptr_t addresses[kMostFrames];
  size_t count = 0;
  const void* thrown = nullptr;
} stack;
[[gnu::tls_model("initial-exec")]] thread_local const void* traced_end = nullptr;  // every call sets it

_Unwind_Reason_Code keep_frame(_Unwind_Context* context, void*) {
  if (stack.count == kMostFrames) return _URC_END_OF_STACK;
  if (_Unwind_GetCFA(context) > reinterpret_cast<uintptr_t>(traced_end)) {
    if (stack.count > 0) --stack.count;  // the last was traced() itself
    return _URC_END_OF_STACK;
  }
  stack.addresses[stack.count++] = _Unwind_GetIP(context) - 1;  // inside the call
  return _URC_NO_REASON;
}

#ifdef __GLIBCXX__
/// The description of `Passing`, with which libstdc++ asks whether its handler fits.
struct PassingType : std::type_info {
  PassingType() : std::type_info("tutti::Passing") {}
  bool __do_catch(const std::type_info*, void** thrown, unsigned) const override {
    if (stack.count > 0 && stack.thrown == *thrown) return false;  // asked again while the stack is unwound
    stack.count = 0;
    stack.thrown = *thrown;
    if (traced_end) _Unwind_Backtrace(keep_frame, nullptr);
    return false;
  }
};
#endif

bool throws(std::string_view name) {
  for (const char* thrower : {"__cxa_throw", "__cxa_rethrow", "rethrow_exception"})
    if (name.find(thrower) != name.npos) return true;
  return false;
}

/// Between the user's functions and what threw, or called them.
bool is_between(const Frame& frame) {
  return frame.function.starts_with("std::") || frame.function.starts_with("tutti::") ||
         frame.function.find(" std::") < frame.function.find('(') || frame.file.find("/include/c++/") != frame.file.npos ||
         frame.file.find("include/tutti/") != frame.file.npos;
}

}  // namespace

#ifdef __GLIBCXX__
extern std::byte passing_type[] __asm__("_ZTIN5tutti6detail7PassingE");
alignas(PassingType) std::byte passing_type[sizeof(PassingType)];
[[maybe_unused]] static const auto* const made = new (passing_type) PassingType;  // never destroyed
#else
Passing::~Passing() = default;  // another C++ library: no tracebacks
#endif

TracebackEnd::TracebackEnd(const void* frame) : outer_(traced_end) { traced_end = frame; }
TracebackEnd::~TracebackEnd() { traced_end = outer_; }

void forget_traceback() { stack.count = 0; }

std::string take_traceback() noexcept try {
  std::vector<Frame> frames;
  for (size_t i = 0; i < stack.count; ++i)
    for (Frame& frame : frames_at(stack.addresses[i])) frames.push_back(std::move(frame));
  forget_traceback();
  size_t first = 0, last = frames.size();
  for (size_t i = 0; i < frames.size(); ++i)
    if (throws(frames[i].function)) first = i + 1;
  while (last > first && is_between(frames[last - 1])) --last;
  while (first + 1 < last && is_between(frames[first]) && is_between(frames[first + 1])) ++first;  // inside what it called
  std::string text;
  for (size_t i = first; i < last && i < first + kMostLines; ++i) {
    if (!text.empty()) text += '\n';
    text += "    " + (frames[i].function.empty() ? "?" : frames[i].function);
    if (!frames[i].file.empty()) text += fmt::format(" at {}:{}", frames[i].file, frames[i].line);
    else if (!frames[i].module.empty()) text += " in " + frames[i].module;
  }
  if (last > first + kMostLines) text += fmt::format("\n    and {} more", last - first - kMostLines);
  return text;
} catch (const std::exception&) {  // no memory, say: what was thrown is told without
  return {};
}

}  // namespace tutti::detail

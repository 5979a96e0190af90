#include "core/interpreter.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>
#include <filesystem>
#include <mutex>

#include "tutti/error.h"
#include "tutti/interop/embed.h"

namespace tutti::detail {
namespace {

std::atomic<const interop::Interpreter*> the_interpreter{nullptr};  // one that workers start comes while the controller may wait

}  // namespace

WithoutInterpreter::WithoutInterpreter() : take_(nullptr) {
  const auto* interpreter = the_interpreter.load(std::memory_order_acquire);
  if (!interpreter || !interpreter->let_go) return;
  take_ = interpreter->take;
  interpreter->let_go();
}
WithoutInterpreter::~WithoutInterpreter() {
  if (take_) take_();
}

void start_python() {
  static auto& mutex = *new std::mutex;
  std::lock_guard lock(mutex);
  Dl_info here{};
  dladdr(reinterpret_cast<void*>(&start_python), &here);
  const auto folder = std::filesystem::path(here.dli_fname ? here.dli_fname : "").parent_path();
  void* plugin = nullptr;
  std::string why;
  for (const auto& file : {folder / "libtutti_python.so", folder / "python" / "libtutti_python.so"})  // as installed; as built
    if (!plugin && (why.empty() || std::filesystem::exists(file)) && !(plugin = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL)))
      why = dlerror();
  if (!plugin)
    throw UsageError(fmt::format(
        "no Python in this process: {}; build tutti with -Dpython=enabled, or start the controller by python3 -m tutti", why));
  auto* start = reinterpret_cast<const char* (*)()>(dlsym(plugin, "tutti_start_python"));
  if (const std::string error = start ? start() : "libtutti_python.so has no tutti_start_python"; !error.empty())
    throw UsageError(fmt::format(
        "Python can't be started in this process: {}; TUTTI_PYTHON names an interpreter, PYTHONPATH folders with modules",
        error));
}

StackSignal stack_signal() {
  const auto* interpreter = the_interpreter.load(std::memory_order_acquire);
  return interpreter ? StackSignal{interpreter->stack_signal, interpreter->stack_fd} : StackSignal{};
}

void check_interrupted() {
  if (const auto* interpreter = the_interpreter.load(); interpreter && interpreter->interrupted) interpreter->interrupted();
}

}  // namespace tutti::detail

namespace tutti::interop {

void set_interpreter(const Interpreter& interpreter) { detail::the_interpreter.store(new Interpreter(interpreter)); }  // for good

}  // namespace tutti::interop

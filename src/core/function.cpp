#include "tutti/function.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "core/builtins.h"
#include "core/function_parts.h"
#include "core/printable.h"
#include "tutti/version.h"

namespace tutti {
using namespace detail;

std::string_view version() { return TUTTI_VERSION; }

struct Function::Impl {
  std::string name;
  Callable callable;
  Options options;
  ShortName short_name{name};
};

Function::Function(std::string name, Callable callable, Options options)
    : impl_(std::make_shared<const Impl>(Impl{.name = std::move(name), .callable = std::move(callable), .options = options})) {}

Value Function::operator()(Args args) const {
  if (!impl_) throw UsageError("call of an empty function");
  return impl_->callable(args);
}

const std::string& Function::name() const {
  static const std::string kEmpty = "(empty)";
  return impl_ ? impl_->name : kEmpty;
}

const Function::Options& Function::options() const {
  static const Options kDefaults;
  return impl_ ? impl_->options : kDefaults;
}

const ShortName& detail::FunctionParts::short_name(const Function& function) {
  static const ShortName kEmpty("(empty)");
  return function.impl_ ? function.impl_->short_name : kEmpty;
}

const Function::Callable* detail::FunctionParts::callable(const Function& function) {
  return function.impl_ ? &function.impl_->callable : nullptr;
}

namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, Function, std::less<>> functions;
};

/// How many letters to change, add or drop to make one of the other.
size_t edits(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1, diagonal = std::exchange(row[0], i); j <= b.size(); ++j)
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])}));
  return row[b.size()];
}

Registry& registry() {  // leaked: functions may be used until the very end of the process
  register_builtins();
  static Registry* instance = [] {
    static Registry* made = new Registry;
    // a fork while another thread looks up a function: the child may do so, too
    ::pthread_atfork([] { made->mutex.lock(); }, [] { made->mutex.unlock(); }, [] { made->mutex.unlock(); });
    return made;
  }();
  return *instance;
}

}  // namespace

namespace detail {

void throw_argument_count(const std::string& function, size_t expected, size_t got) {
  const char* plural = expected == 1 ? "" : "s";
  throw UsageError(fmt::format("{}: expected {} argument{}, got {}", printable(function), expected, plural, got));
}

void throw_argument_type(const std::string& function, size_t position, const char* expected, const Value& got) {
  const std::string name = printable(function);
  throw UsageError(fmt::format("{}: argument {}: expected {}, got {}", name, position + 1, expected, to_string(got)));
}

void throw_argument_range(const std::string& function, size_t position, int64_t least, uint64_t most, const Value& got) {
  throw UsageError(fmt::format("{}: argument {}: expected an int from {} to {}, got {}", printable(function), position + 1, least,
                               most, to_string(got)));
}

void register_function(Function function, bool override_existing) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  auto [it, is_new] = r.functions.try_emplace(function.name(), function);
  if (is_new) return;
  if (!override_existing)
    throw UsageError(fmt::format(
        "function '{}' is already registered; override it to replace it (C++: override_existing, Python: override=True)",
        printable(function.name())));
  std::swap(it->second, function);  // the old one goes without the lock: its end may be anybody's code
}

std::vector<std::string> function_names(std::string_view beginning) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  std::vector<std::string> names;
  for (auto it = r.functions.lower_bound(beginning); it != r.functions.end() && it->first.starts_with(beginning); ++it)
    names.push_back(it->first);
  return names;
}

namespace {
std::atomic<std::optional<Function> (*)(const std::string&)> further{nullptr};
}
void look_further(std::optional<Function> (*find)(const std::string&)) { further = find; }

}  // namespace detail

std::optional<Function> find_global_func(std::string_view name) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  auto it = r.functions.find(name);
  return it == r.functions.end() ? std::nullopt : std::optional(it->second);
}

Function get_global_func(std::string_view name) {
  if (auto found = find_global_func(name)) return *found;
  if (const auto find = further.load())
    if (auto found = find(std::string(name))) return *found;
  // near names: same last component or same prefix, the nearest first
  std::vector<std::string> near;
  const std::string_view tail = name.substr(name.rfind('.') == name.npos ? 0 : name.rfind('.') + 1);
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  for (const auto& [known, function] : r.functions)
    if ((!tail.empty() && known.ends_with(tail)) || known.substr(0, 5) == name.substr(0, 5)) near.push_back(known);
  std::ranges::stable_sort(near, {}, [&](const std::string& known) { return edits(known, name); });
  near.resize(std::min<size_t>(near.size(), 5));
  const std::string near_it =
      near.empty() ? "" : fmt::format("near it: {}; ", printable(fmt::format("{}", fmt::join(near, ", "))));
  throw UsageError(
      fmt::format("no function '{}' is registered in this process; {}Python: session.define it, or register it in a module that "
                  "session.import_python_module names; C++: register_global_func it in the program that every rank runs",
                  printable(name), near_it));
}

}  // namespace tutti

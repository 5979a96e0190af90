#include "core/type_name.h"

#include <cxxabi.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <typeindex>

#include "tutti/value.h"

namespace tutti {

std::string type_name(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), &std::free);
  return status == 0 && name ? name.get() : type.name();
}

std::string what_of(const std::exception& error) {
  const char* what = error.what();
  return what ? what : "what() of the exception is null";
}

const char* detail::type_name(const std::type_info& type) {
  static std::mutex mutex;
  static auto& names = *new std::map<std::type_index, std::string>;
  std::lock_guard lock(mutex);
  auto& name = names[type];
  if (name.empty()) name = tutti::type_name(type);
  return name.c_str();
}

}  // namespace tutti

#include "core/type_name.h"

#include <map>
#include <mutex>
#include <typeindex>

#include "core/demangle.h"
#include "tutti/value.h"

namespace tutti {

std::string type_name(const std::type_info& type) { return demangled(type.name()); }

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

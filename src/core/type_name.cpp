#include "core/type_name.h"

#include <map>
#include <mutex>
#include <typeindex>
#include <typeinfo>

#include "core/demangle.h"
#include "tutti/value.h"

namespace tutti::detail {

std::string what_of(const std::exception& error) {
  const char* what = error.what();
  return what ? what : "what() of the exception is null";
}

const char* type_name(const std::type_info& type) {
  static std::mutex mutex;
  static auto& names = *new std::map<std::type_index, std::string>;
  std::lock_guard lock(mutex);
  auto& name = names[type];
  if (name.empty()) name = demangled(type.name());
  return name.c_str();
}

}  // namespace tutti::detail

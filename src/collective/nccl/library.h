#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "collective/nccl/abi.h"
#include "core/by_name.h"

namespace tutti::detail::nccl {

struct Functions {
  int version = 0;  ///< 22809 is 2.28.9
#define TUTTI_FUNCTION(field, name, ...) FoundFunction<__VA_ARGS__> field;
#define TUTTI_NEWER_FUNCTION(field, name, version, ...) FoundFunction<__VA_ARGS__> field;
#define TUTTI_TEXT_FUNCTION(field, name, ...) const char* (*field)(__VA_ARGS__) = nullptr;
#include "collective/nccl/functions.def"
#undef TUTTI_FUNCTION
#undef TUTTI_NEWER_FUNCTION
#undef TUTTI_TEXT_FUNCTION
};

/// NCCL or RCCL, found at run time. Loaded once a process, and never unloaded.
class Library {
 public:
  /// `device_type`: DLPack's kCUDA (NCCL) or kROCM (RCCL).  @throws SystemError  none, or one that is too old: says what to do
  static const Library& of(int32_t device_type);

  const Functions functions;
  std::string_view name() const;  ///< "NCCL"
  /// "ncclAllReduce failed with unhandled cuda error: Cuda failure 'out of memory' (NCCL 2.28.9)"
  std::string describe(std::string_view call, Status status, Comm comm) const;

 private:
  Library(int32_t device_type, const std::string& path);

  int32_t device_type_;
};

}  // namespace tutti::detail::nccl

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/by_name.h"
#include "device/cuda/abi.h"

namespace tutti::detail::gpu {

template <class... Parameters>
using Function = FoundFunction<Parameters...>;

/// What a driver offers; CUDA's and HIP's are the same but for their names.
struct Functions {
#define TUTTI_FUNCTION(field, cuda, hip, ...) Function<__VA_ARGS__> field;
#define TUTTI_CUDA_FUNCTION(field, cuda, ...) Function<__VA_ARGS__> field;
#define TUTTI_HIP_FUNCTION(field, hip, ...) Function<__VA_ARGS__> field;
#include "device/cuda/functions.def"
#undef TUTTI_FUNCTION
#undef TUTTI_CUDA_FUNCTION
#undef TUTTI_HIP_FUNCTION
};

/// A GPU's driver, found in its library at run time: nothing of it is needed to build, and a machine without one only can't use
/// GPUs. Loaded once a process, and never unloaded.
class Driver {
 public:
  /// `type`: DLPack's kCUDA or kROCM.  @throws SystemError  no driver, one that is too old, or no GPU that this process may use
  static const Driver& of(int32_t type);
  static bool is_installed(int32_t type);  ///< its library can be loaded, whatever it says then

  const Functions functions;
  int32_t type() const { return type_; }
  int device_count() const { return device_count_; }
  /// Calls `function`; `device`: the number of the GPU that the call is for, as error messages name it.  @throws SystemError
  /// @throws DeviceLost  the device can't be used any more
  template <class... P>
  void run(int device, const Function<P...>& function, std::type_identity_t<P>... arguments) const {
    if (const Status status = function.call(arguments...); status != kSuccess) fail(device, function.name, status);
  }
  [[noreturn]] void fail(int device, std::string_view call, Status status) const;
  std::string describe(Status status) const;  ///< "CUDA_ERROR_OUT_OF_MEMORY (out of memory)"

 private:
  Driver(int32_t type, const std::string& path);

  int32_t type_;
  int device_count_ = 0;
};

}  // namespace tutti::detail::gpu

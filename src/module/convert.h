// Values of tutti as values of the C calling convention, and back.
#pragma once

#include <vector>

#include "module/object.h"
#include "tutti/value.h"

namespace tutti::ffi {

/// Takes over the value (its reference, if it is an object). Tensors and foreign objects are shared, all else is copied.
/// @throws ModuleError  the value is not what it claims to be (check.h); nothing is taken over then
Value take(const TVMFFIAny& owned, const std::string& from);
/// A value that its giver keeps; also those kinds that are for arguments only. A DLTensor* is valid as long as the giver says.
/// @throws ModuleError
Value view(const TVMFFIAny& borrowed, const std::string& from);
/// With a reference for the receiver.  @throws UsageError  a DRef
TVMFFIAny to_owned(const Value& value);
/// The tensor of an object of kTVMFFITensor, sharing its memory; the object lives as long as the tensor.
Tensor tensor_of(const ObjectRef& object);

/// Arguments for a module, for the time of one call.
class LentArgs {
 public:
  explicit LentArgs(Args args);
  ~LentArgs();
  LentArgs(const LentArgs&) = delete;
  LentArgs& operator=(const LentArgs&) = delete;
  const TVMFFIAny* data() const { return values_.data(); }
  int32_t size() const { return static_cast<int32_t>(values_.size()); }
  /// The position of an argument that the callee released though it was not its own, or -1.
  int take_back();

 private:
  std::vector<TVMFFIAny> values_;
  bool lent_ = true;
};

}  // namespace tutti::ffi

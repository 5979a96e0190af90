#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "core/handle.h"
#include "module/object.h"
#include "tutti/error.h"
#include "tutti/function.h"

namespace tutti::ffi {

struct NeedsTvm : SystemError {
  using SystemError::SystemError;
};

/// A shared library in this process. Loaded once per file; a file that has changed under its path is loaded anew, beside the old
/// one. Never unloaded: objects and functions of it may be anywhere.
class Library {
 public:
  /// The file is loaded from a private copy in memory, so that overwriting it harms nobody, and its constructors run outside
  /// dlopen, so that one may throw. Any thread.
  /// @throws UsageError   no such file, not a shared library, another machine's
  /// @throws NeedsTvm     its kernels call TVM's runtime
  /// @throws SystemError  the system's loader refused it: a missing library or symbol
  /// @throws ModuleError  a constructor threw
  static Library& open(const std::string& path);

  struct Needs {
    bool tvm;         ///< TVM's runtime has to load it: it carries other modules
    bool libtvm_ffi;  ///< it is linked with that
  };
  /// Without loading it.  @throws UsageError  as open
  static Needs needs_of(const std::string& path);

  static Library* find(void* context);  ///< null: that is none of our libraries

  const std::string& path() const { return path_; }
  bool links_libtvm_ffi() const { return links_libtvm_ffi_; }
  void* symbol(const std::string& name) const;  ///< null if there is none
  /// The function behind __tvm_ffi_<name>; `self` is its first argument.
  std::optional<Function> function(const std::string& name, const ObjectRef& self = {});
  std::vector<std::string> functions() const;  ///< names that function() takes
  /// A function of this library or a global one, for compiled code; borrowed.  @throws UsageError  there is none
  TVMFFIObject* lookup(const std::string& name);

 private:
  explicit Library(std::string path);
  ~Library();  // of one that could not be loaded
  friend std::default_delete<Library>;
  void load();
  void fill_in_context();
  void run_constructors(uint64_t first, uint64_t count);

  std::string path_;
  detail::Fd image_;  // stays open: debuggers read it by the name it was loaded under
  void* handle_ = nullptr;
  bool links_libtvm_ffi_ = false;
  std::mutex mutex_;
  std::map<std::string, ObjectRef> looked_up_;
};

}  // namespace tutti::ffi

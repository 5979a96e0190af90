// The table of types: what libraries ask for that were built with tvm-ffi's C++ headers. Once libtvm_ffi is here, its own.
#include <fmt/format.h>

#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/printable.h"
#include "module/call.h"
#include "module/runtime.h"
#include "tutti/abi.h"
#include "tutti/error.h"

using namespace tutti;          // NOLINT: definitions of C functions
using namespace tutti::ffi;     // NOLINT
using namespace tutti::detail;  // NOLINT

namespace {

constexpr int32_t kQuery = -2, kAnyIndex = -1;
/// libtvm_ffi, should it come later, counts from kTVMFFIDynObjectBegin on: an index must not mean two types.
constexpr int32_t kFirstOwn = 1 << 20;

struct Type {
  std::string key;
  std::vector<const TVMFFITypeInfo*> ancestors;
  TVMFFITypeInfo info{};
  int32_t slots = 1;  ///< indices that are its own or its children's, from its own on
  int32_t used = 1;
};

class Types {
 public:
  Types() {
    constexpr const char* kValues[] = {"None",
                                       "int",
                                       "bool",
                                       "float",
                                       "void*",
                                       "DataType",
                                       "Device",
                                       "DLTensor*",
                                       "const char*",
                                       "TVMFFIByteArray*",
                                       "ObjectRValueRef",
                                       "ffi.SmallStr",
                                       "ffi.SmallBytes"};
    constexpr const char* kObjects[] = {"String", "Bytes",  "Error",          "Function", "Shape", "Tensor",         "Array",
                                        "Map",    "Module", "OpaquePyObject", "List",     "Dict",  "VisitInterrupt", "BigInt"};
    for (int32_t index = 0; const char* key : kValues) add(key, index++, 0, nullptr);
    Type* object = add("ffi.Object", kTVMFFIObject, 0, nullptr);
    for (int32_t index = kTVMFFIObject + 1; const char* key : kObjects) add(std::string("ffi.") + key, index++, 0, object);
  }

  int32_t get_or_add(std::string_view key, int32_t static_index, int32_t child_slots, int32_t parent_index) {
    const std::lock_guard lock(mutex_);
    if (const auto known = by_key_.find(key); known != by_key_.end()) return known->second->info.type_index;
    if (parent_index == kQuery) return kQuery;
    const auto found = by_index_.find(parent_index);
    Type* const parent = found == by_index_.end() ? nullptr : found->second;
    int32_t index = static_index;
    if (index == kAnyIndex && parent && parent->used + child_slots < parent->slots) {
      index = parent->info.type_index + parent->used;
      parent->used += child_slots + 1;
    } else if (index == kAnyIndex) {
      index = next_;
      next_ += child_slots + 1;
    }
    return add(std::string(key), index, child_slots, parent)->info.type_index;
  }

  std::optional<int32_t> find(std::string_view key) {
    const std::lock_guard lock(mutex_);
    const auto known = by_key_.find(key);
    return known == by_key_.end() ? std::nullopt : std::optional(known->second->info.type_index);
  }
  /// Whether a library made it known before libtvm_ffi came, if it did.
  bool own(std::string_view key) {
    const auto index = find(key);
    return index && *index >= kFirstOwn;
  }
  const TVMFFITypeInfo* info(int32_t index) {
    const std::lock_guard lock(mutex_);
    const auto known = by_index_.find(index);
    return &(known == by_index_.end() ? by_index_.at(kTVMFFIObject) : known->second)->info;
  }

 private:
  Type* add(std::string key, int32_t index, int32_t child_slots, const Type* parent) {
    Type& made = types_.emplace_back();
    made.key = std::move(key);
    if (parent) made.ancestors = parent->ancestors, made.ancestors.push_back(&parent->info);
    made.slots = child_slots + 1;
    made.info.type_index = index;
    made.info.type_depth = static_cast<int32_t>(made.ancestors.size());
    made.info.type_key = {made.key.data(), made.key.size()};
    made.info.type_ancestors = made.ancestors.data();
    made.info.type_key_hash = std::hash<std::string>()(made.key);
    by_key_[made.key] = by_index_[index] = &made;
    return &made;
  }

  std::mutex mutex_;
  std::deque<Type> types_;  // which stay where they are: their infos are handed out
  std::map<std::string, Type*, std::less<>> by_key_;
  std::map<int32_t, Type*> by_index_;
  int32_t next_ = kFirstOwn;
};

Types& types() {
  static auto& one = *new Types;  // for the life of the process
  return one;
}

std::string_view view_of(const TVMFFIByteArray* key) { return {key->data, key->size}; }

}  // namespace

int TVMFFITypeKeyToIndex(const TVMFFIByteArray* type_key, int32_t* out) {
  if (!types().own(view_of(type_key))) TUTTI_BY_LIBTVM_FFI(TVMFFITypeKeyToIndex, type_key, out);
  return guard([&] {
    const auto found = types().find(view_of(type_key));
    if (!found) throw UsageError(fmt::format("no type of objects has the key '{}'", printable(std::string(view_of(type_key)))));
    *out = *found;
  });
}
int32_t TVMFFITypeGetOrAllocIndex(const TVMFFIByteArray* type_key, int32_t static_type_index, int32_t type_depth,
                                  int32_t num_child_slots, int32_t child_slots_can_overflow, int32_t parent_type_index) {
  if (!types().own(view_of(type_key)) && parent_type_index < kFirstOwn)
    TUTTI_BY_LIBTVM_FFI(TVMFFITypeGetOrAllocIndex, type_key, static_type_index, type_depth, num_child_slots,
                        child_slots_can_overflow, parent_type_index);
  return types().get_or_add(view_of(type_key), static_type_index, num_child_slots, parent_type_index);
}
const TVMFFITypeInfo* TVMFFIGetTypeInfo(int32_t type_index) {
  if (type_index < kFirstOwn) TUTTI_BY_LIBTVM_FFI(TVMFFIGetTypeInfo, type_index);
  return types().info(type_index);
}
int TVMFFITypeRegisterField(int32_t type_index, const TVMFFIFieldInfo* info) {
  if (type_index < kFirstOwn) TUTTI_BY_LIBTVM_FFI(TVMFFITypeRegisterField, type_index, info);
  return 0;
}
int TVMFFITypeRegisterMethod(int32_t type_index, const TVMFFIMethodInfo* info) {
  if (type_index < kFirstOwn) TUTTI_BY_LIBTVM_FFI(TVMFFITypeRegisterMethod, type_index, info);
  return 0;
}
int TVMFFITypeRegisterMetadata(int32_t type_index, const TVMFFITypeMetadata* metadata) {
  if (type_index < kFirstOwn) TUTTI_BY_LIBTVM_FFI(TVMFFITypeRegisterMetadata, type_index, metadata);
  return 0;
}
int TVMFFITypeRegisterAttr(int32_t type_index, const TVMFFIByteArray* name, const TVMFFIAny* value) {
  if (type_index < kFirstOwn) TUTTI_BY_LIBTVM_FFI(TVMFFITypeRegisterAttr, type_index, name, value);
  return 0;
}
const TVMFFITypeAttrColumn* TVMFFIGetTypeAttrColumn(const TVMFFIByteArray* name) {
  TUTTI_BY_LIBTVM_FFI(TVMFFIGetTypeAttrColumn, name);
  return nullptr;
}

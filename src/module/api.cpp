// The functions of tutti/abi.h that modules call.
#include <fmt/format.h>

#include <atomic>
#include <mutex>
#include <utility>

#include "device/streams.h"
#include "module/call.h"
#include "module/library.h"
#include "module/object.h"
#include "module/runtime.h"
#include "tutti/abi.h"
#include "tutti/function.h"

using namespace tutti;          // NOLINT: definitions of C functions
using namespace tutti::ffi;     // NOLINT
using namespace tutti::detail;  // NOLINT

namespace {

TVMFFIObject* header(TVMFFIObjectHandle handle) {
  if (!handle) throw UsageError("an object handle is null");
  return static_cast<TVMFFIObject*>(handle);
}
std::string text(const TVMFFIByteArray* bytes) { return bytes ? std::string(bytes->data, bytes->size) : std::string(); }

/// For all handles that are made once. Recursive: to make one may need another.
std::recursive_mutex& once() {
  static auto& one = *new std::recursive_mutex;
  return one;
}

}  // namespace

void TVMFFIGetVersion(TVMFFIVersion* out) {
  TUTTI_BY_LIBTVM_FFI(TVMFFIGetVersion, out);
  *out = {0, 1, 16};
}

int TVMFFIObjectIncRef(TVMFFIObjectHandle object) {
  return guard([&] { inc_ref(header(object)); });
}
int TVMFFIObjectDecRef(TVMFFIObjectHandle object) {
  return guard([&] { dec_ref(header(object)); });
}
int TVMFFIObjectCreateOpaque(void* handle, int32_t type_index, void (*deleter)(void* handle), TVMFFIObjectHandle* out) {
  return guard([&] {
    if (type_index < kTVMFFIObject) throw UsageError(fmt::format("type index {} is not that of an object", type_index));
    if ((type_index > kTVMFFIObject && type_index < kTVMFFIModule) || type_index == kTVMFFIList || type_index == kTVMFFIDict)
      throw UsageError(
          fmt::format("type index {} has a layout of its own; use {}", type_index, static_cast<int>(kTVMFFIOpaquePyObject)));
    *out = make_opaque_object(handle, type_index, deleter).release();
  });
}
int TVMFFIAnyViewToOwnedAny(const TVMFFIAny* any, TVMFFIAny* out) {
  return guard([&] {
    if (any->type_index >= kTVMFFIObject) inc_ref(header(any->v_obj));
    const bool is_view = any->type_index == kTVMFFIRawStr || any->type_index == kTVMFFIByteArrayPtr;
    *out = is_view ? to_owned(view(*any, "TVMFFIAnyViewToOwnedAny")) : *any;
  });
}

int TVMFFIFunctionCreate(void* self, TVMFFISafeCallType safe_call, void (*deleter)(void* self), TVMFFIObjectHandle* out) {
  return guard([&] { *out = make_callback(self, safe_call, deleter).release(); });
}
int TVMFFIFunctionGetGlobal(const TVMFFIByteArray* name, TVMFFIObjectHandle* out) {
  return guard([&] {
    *out = nullptr;
    if (auto ours = find_global_func(text(name))) *out = make_box(*ours).release();
    else if (auto foreign = find_foreign_function(text(name))) *out = foreign->release();
  });
}
int TVMFFIFunctionSetGlobal(const TVMFFIByteArray* name, TVMFFIObjectHandle function, int allow_override) {
  // get_global_func looks there, too; TVM's Python registers names of Disco's that are ours
  if (const std::string known = text(name); known.starts_with("runtime.disco.") || !find_global_func(known))
    TUTTI_BY_LIBTVM_FFI(TVMFFIFunctionSetGlobal, name, function, allow_override);
  return guard([&] {
    const TVMFFIObject* object = header(function);
    if (object->type_index != kTVMFFIFunction) throw UsageError("TVMFFIFunctionSetGlobal: the object is not a function");
    detail::register_function(function_of(text(name), ObjectRef::share(header(function))), allow_override != 0);
  });
}
int TVMFFIFunctionSetGlobalFromMethodInfo(const TVMFFIMethodInfo* info, int allow_override) {
  TUTTI_BY_LIBTVM_FFI(TVMFFIFunctionSetGlobalFromMethodInfo, info, allow_override);
  return TVMFFIFunctionSetGlobal(&info->name, info->method.v_obj, allow_override);
}
int TVMFFIFunctionCall(TVMFFIObjectHandle function, TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  if (!function) return guard([] { throw UsageError("TVMFFIFunctionCall: the function is null"); });
  return cell_of<TVMFFIFunctionCell>(static_cast<TVMFFIObject*>(function)).safe_call(function, args, num_args, result);
}

void TVMFFIErrorSetRaised(TVMFFIObjectHandle error) { set_raised(ObjectRef::share(static_cast<TVMFFIObject*>(error))); }
void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message) { TVMFFIErrorSetRaisedFromCStrParts(kind, &message, 1); }
void TVMFFIErrorSetRaisedFromCStrParts(const char* kind, const char** message_parts, int32_t num_parts) {
  std::string message;
  for (int32_t i = 0; i < num_parts; ++i)
    if (message_parts[i]) message += message_parts[i];
  set_raised(make_error(kind ? kind : "RuntimeError", std::move(message), ""));
}
void TVMFFIErrorMoveFromRaised(TVMFFIObjectHandle* out) { *out = move_from_raised().release(); }
int TVMFFIErrorCreate(const TVMFFIByteArray* kind, const TVMFFIByteArray* message, const TVMFFIByteArray* backtrace,
                      TVMFFIObjectHandle* out) {
  return guard([&] { *out = make_error(text(kind), text(message), text(backtrace)).release(); });
}

int TVMFFIErrorCreateWithCauseAndExtraContext(const TVMFFIByteArray* kind, const TVMFFIByteArray* message,
                                              const TVMFFIByteArray* backtrace, TVMFFIObjectHandle cause_chain,
                                              TVMFFIObjectHandle extra_context, TVMFFIObjectHandle* out) {
  return guard([&] {
    ObjectRef error = make_error(text(kind), text(message), text(backtrace));
    auto& cell = cell_of<TVMFFIErrorCell>(error.get());
    cell.cause_chain = ObjectRef::share(static_cast<TVMFFIObject*>(cause_chain)).release();
    cell.extra_context = ObjectRef::share(static_cast<TVMFFIObject*>(extra_context)).release();
    *out = error.release();
  });
}
const TVMFFIByteArray* TVMFFIBacktrace(const char* file, int line, const char* function, int cross_ffi_boundary) {
  TUTTI_BY_LIBTVM_FFI(TVMFFIBacktrace, file, line, function, cross_ffi_boundary);
  thread_local std::string said;
  thread_local TVMFFIByteArray bytes;
  said = file && function ? fmt::format("  File \"{}\", line {}, in {}\n", file, line, function) : "";
  bytes = {said.data(), said.size()};
  return &bytes;
}

int TVMFFIHandleInitOnce(void** handle, int (*init_func)(void** result)) {
  std::atomic_ref<void*> stored(*handle);
  if (stored.load()) return 0;
  const std::lock_guard lock(once());
  if (stored.load()) return 0;
  void* made = nullptr;
  if (const int code = init_func(&made); code != 0) return code;
  if (!made) return guard([] { throw UsageError("TVMFFIHandleInitOnce: init_func has made no handle"); });
  stored = made;
  return 0;
}
int TVMFFIHandleDeinitOnce(void** handle, int (*deinit_func)(void* handle)) {
  void* const there = std::atomic_ref<void*>(*handle).exchange(nullptr);
  return there ? deinit_func(there) : 0;
}

int TVMFFIStringFromByteArray(const TVMFFIByteArray* input, TVMFFIAny* out) {
  return guard([&] { *out = to_owned(text(input)); });
}
int TVMFFIBytesFromByteArray(const TVMFFIByteArray* input, TVMFFIAny* out) {
  return guard([&] {
    const auto* first = reinterpret_cast<const std::byte*>(input->data);
    *out = to_owned(Bytes(first, first + input->size));
  });
}
int TVMFFIDataTypeFromString(const TVMFFIByteArray* name, DLDataType* out) {
  TUTTI_BY_LIBTVM_FFI(TVMFFIDataTypeFromString, name, out);
  return guard([&] {
    const DType dtype = parse_dtype(text(name));
    *out = {dtype.code, dtype.bits, dtype.lanes};
  });
}
int TVMFFIDataTypeToString(const DLDataType* dtype, TVMFFIAny* out) {
  TUTTI_BY_LIBTVM_FFI(TVMFFIDataTypeToString, dtype, out);
  return guard([&] { *out = to_owned(to_string(DType{dtype->code, dtype->bits, dtype->lanes})); });
}

int TVMFFIEnvSetStream(int32_t device_type, int32_t device_id, void* stream, void** out_original) {
  return guard([&] {
    void* original = set_current_stream({device_type, device_id}, stream);
    if (out_original) *out_original = original;
  });
}
void* TVMFFIEnvGetStream(int32_t device_type, int32_t device_id) { return current_stream({device_type, device_id}); }

int TVMFFIEnvModLookupFromImports(TVMFFIObjectHandle library_ctx, const char* name, TVMFFIObjectHandle* out) {
  int code = 0;  // of an error that is raised already
  const int ours = guard([&] {
    if (!library_ctx) throw UsageError("TVMFFIEnvModLookupFromImports: the library's context is null");
    if (Library* library = Library::find(library_ctx)) *out = library->lookup(name);
    else code = look_up_for_foreign(library_ctx, name, out);
  });
  return code != 0 ? code : ours;
}
int TVMFFIEnvModRegisterContextSymbol(const char* name, void* symbol) {
  return guard([&] { register_context_symbol(name, symbol); });
}

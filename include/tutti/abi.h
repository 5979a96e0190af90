/* The C calling convention of modules: what a shared library that load_vm_module loads may rely on. It is tvm-ffi's binary
 * interface (https://tvm.apache.org/ffi), stated in our own words; TVM's own header may be included before this one.
 *
 * A library offers a function `name` as
 *     int __tvm_ffi_name(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);
 * It returns 0 and has stored its result (None if it stores nothing), or -1 after TVMFFIErrorSetRaisedFromCStr(kind, message).
 * Arguments are borrowed: to keep an object, raise its count. A result is owned by the caller: an object comes with one
 * reference for it. `self` is null; of a library whose vm_load_executable returned an object, it is that object.
 *
 * Every function below is in the process (libtutti, or libtvm_ffi where a module brings it): a module needs to link nothing.
 * All return 0, or -1 with a raised error, and may be called on any thread, unless stated otherwise. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef DLPACK_DLPACK_H_
typedef struct {
  int32_t device_type; /* 1: CPU, 2: CUDA, ... */
  int32_t device_id;
} DLDevice;
typedef struct {
  uint8_t code; /* 0: int, 1: unsigned, 2: float, 4: bfloat, 5: complex, 6: bool, ... */
  uint8_t bits;
  uint16_t lanes;
} DLDataType;
typedef struct {
  void* data; /* the first element lies at data + byte_offset */
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides; /* in elements; null: row-major */
  uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensor* self); /* whoever takes the tensor over calls it once; null: nothing to do */
} DLManagedTensor;
#endif

#ifndef DLPACK_MAJOR_VERSION /* headers of DLPack before 1.0 lack these */
typedef struct {
  uint32_t major;
  uint32_t minor;
} DLPackVersion;
typedef struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned* self);
  uint64_t flags; /* 1: read only */
  DLTensor dl_tensor;
} DLManagedTensorVersioned;
#endif

#ifndef TVM_FFI_C_API_H_
enum {
  /* values; an argument or a result is one of these, or an object (64 and above) */
  kTVMFFINone = 0,
  kTVMFFIInt = 1,
  kTVMFFIBool = 2,
  kTVMFFIFloat = 3,
  kTVMFFIOpaquePtr = 4,
  kTVMFFIDataType = 5,
  kTVMFFIDevice = 6,
  kTVMFFIDLTensorPtr = 7,  /* arguments only: DLTensor*, valid during the call */
  kTVMFFIRawStr = 8,       /* arguments only: const char*, valid during the call */
  kTVMFFIByteArrayPtr = 9, /* arguments only: TVMFFIByteArray* */
  kTVMFFIObjectRValueRef = 10,
  kTVMFFISmallStr = 11, /* up to 7 bytes inside the value */
  kTVMFFISmallBytes = 12,
  /* objects: v_obj points to a TVMFFIObject, followed by what is stated */
  kTVMFFIObject = 64,
  kTVMFFIStr = 65,      /* TVMFFIByteArray, the bytes followed by a 0 */
  kTVMFFIBytes = 66,    /* TVMFFIByteArray */
  kTVMFFIError = 67,    /* TVMFFIErrorCell */
  kTVMFFIFunction = 68, /* TVMFFIFunctionCell */
  kTVMFFIShape = 69,    /* TVMFFIShapeCell */
  kTVMFFITensor = 70,   /* DLTensor */
  kTVMFFIArray = 71,    /* TVMFFISeqCell of TVMFFIAny */
  kTVMFFIMap = 72,
  kTVMFFIModule = 73,
  kTVMFFIOpaquePyObject = 74, /* void*: see TVMFFIObjectCreateOpaque */
  kTVMFFIList = 75,           /* TVMFFISeqCell of TVMFFIAny; one that changes */
  kTVMFFIDict = 76,
  kTVMFFIDynObjectBegin = 128 /* types that libraries add: TVMFFITypeGetOrAllocIndex */
};

typedef void* TVMFFIObjectHandle;

typedef struct {
  uint64_t combined_ref_count; /* strong in the low 32 bits, weak in the high ones; a new object has 1 and 1 */
  int32_t type_index;
  uint32_t padding;
  /* called once no strong reference is left (flags & 1: destroy the content) and once no weak one is (flags & 2: free);
   * null: the object lives for ever */
  void (*deleter)(void* self, int flags);
} TVMFFIObject;

typedef struct {
  int32_t type_index;
  union {
    uint32_t zero_padding; /* 0 unless a small string */
    uint32_t small_str_len;
  };
  union {
    int64_t v_int64; /* also bool: 0 or 1 */
    double v_float64;
    void* v_ptr;
    const char* v_c_str;
    TVMFFIObject* v_obj;
    DLDataType v_dtype;
    DLDevice v_device;
    char v_bytes[8];
    uint64_t v_uint64;
  };
} TVMFFIAny;

typedef struct {
  const char* data;
  size_t size;
} TVMFFIByteArray;

typedef struct {
  const int64_t* data;
  size_t size;
} TVMFFIShapeCell;

typedef struct {
  void* data; /* TVMFFIAny[size] */
  int64_t size;
  int64_t capacity;
  void (*data_deleter)(void*); /* null: data is part of the object */
} TVMFFISeqCell;

typedef int (*TVMFFISafeCallType)(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);

typedef struct {
  TVMFFISafeCallType safe_call; /* its first argument is the function object */
  void* cpp_call;               /* null */
} TVMFFIFunctionCell;

typedef struct {
  TVMFFIByteArray kind; /* "ValueError", ... */
  TVMFFIByteArray message;
  TVMFFIByteArray backtrace; /* innermost call first */
  void (*update_backtrace)(TVMFFIObjectHandle self, const TVMFFIByteArray* backtrace,
                           int32_t mode); /* mode 0: replace, 1: append */
  TVMFFIObjectHandle cause_chain;   /* the error that led to this one, or null; tvm-ffi before 0.1.8 has no more than the above */
  TVMFFIObjectHandle extra_context; /* null, or any object */
} TVMFFIErrorCell;

typedef struct {
  uint32_t major, minor, patch;
} TVMFFIVersion;

typedef struct TVMFFITypeInfo {
  int32_t type_index;
  int32_t type_depth; /* that of kTVMFFIObject is 0 */
  TVMFFIByteArray type_key;
  const struct TVMFFITypeInfo** type_ancestors; /* [type_depth], the outermost first */
  uint64_t type_key_hash;
  int32_t num_fields, num_methods; /* this and what follows: 0 and null, as nothing here looks into objects */
  const void *fields, *methods, *metadata;
} TVMFFITypeInfo;

typedef struct {
  TVMFFIByteArray name;
  TVMFFIByteArray doc, metadata; /* for people and tools: not kept */
  int64_t flags;
  TVMFFIAny method; /* a function */
} TVMFFIMethodInfo;

/* What tells of fields and attributes, for libtvm_ffi's own use. */
typedef struct TVMFFIFieldInfo TVMFFIFieldInfo;
typedef struct TVMFFITypeMetadata TVMFFITypeMetadata;
typedef struct TVMFFITypeAttrColumn TVMFFITypeAttrColumn;
#endif

/* Makes a tensor like the prototype: 0, or not 0 after set_error. */
typedef int (*TVMFFITensorAllocator)(DLTensor* prototype, DLManagedTensorVersioned** out, void* error_ctx,
                                     void (*set_error)(void* error_ctx, const char* kind, const char* message));

#pragma GCC visibility push(default)

/* The version of the interface that is stated here; of libtvm_ffi once that is in the process. */
void TVMFFIGetVersion(TVMFFIVersion* out);

/* Reference counts. */
int TVMFFIObjectIncRef(TVMFFIObjectHandle object);
int TVMFFIObjectDecRef(TVMFFIObjectHandle object);
/* An object around a pointer of the module's own; deleter(handle) runs when the last reference goes. It can be a result, lie in
 * a register of the session, and come back as an argument; the pointer follows the header. type_index: kTVMFFIOpaquePyObject. */
int TVMFFIObjectCreateOpaque(void* handle, int32_t type_index, void (*deleter)(void* handle), TVMFFIObjectHandle* out);
/* A borrowed value as an owned one: objects gain a reference, raw strings are copied. */
int TVMFFIAnyViewToOwnedAny(const TVMFFIAny* view, TVMFFIAny* out);

/* Functions. A global function is found by name: those of modules and those of tutti::register_global_func. */
int TVMFFIFunctionCreate(void* self, TVMFFISafeCallType safe_call, void (*deleter)(void* self), TVMFFIObjectHandle* out);
int TVMFFIFunctionGetGlobal(const TVMFFIByteArray* name, TVMFFIObjectHandle* out); /* *out: one reference; null if unknown */
int TVMFFIFunctionSetGlobal(const TVMFFIByteArray* name, TVMFFIObjectHandle function, int allow_override);
int TVMFFIFunctionSetGlobalFromMethodInfo(const TVMFFIMethodInfo* info, int allow_override);
int TVMFFIFunctionCall(TVMFFIObjectHandle function, TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);

/* The raised error of this thread. */
void TVMFFIErrorSetRaised(TVMFFIObjectHandle error);
void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message);
void TVMFFIErrorSetRaisedFromCStrParts(const char* kind, const char** message_parts, int32_t num_parts);
void TVMFFIErrorMoveFromRaised(TVMFFIObjectHandle* out); /* null if none; clears it */
int TVMFFIErrorCreate(const TVMFFIByteArray* kind, const TVMFFIByteArray* message, const TVMFFIByteArray* backtrace,
                      TVMFFIObjectHandle* out);
int TVMFFIErrorCreateWithCauseAndExtraContext(const TVMFFIByteArray* kind, const TVMFFIByteArray* message,
                                              const TVMFFIByteArray* backtrace, TVMFFIObjectHandle cause_chain,
                                              TVMFFIObjectHandle extra_context, TVMFFIObjectHandle* out);
/* "  File \"NAME\", line N, in FUNCTION\n" of what is told; valid until the thread's next call. */
const TVMFFIByteArray* TVMFFIBacktrace(const char* file, int line, const char* function, int cross_ffi_boundary);

/* Types of objects: those above, and those that libraries add. Without libtvm_ffi their fields, methods and attributes are not
 * kept: nothing here reads them. A type key that is unknown is an error. */
int TVMFFITypeKeyToIndex(const TVMFFIByteArray* type_key, int32_t* out);
/* static_type_index -1: a new index is given out, from the parent's reserved ones while there are any. parent_type_index -1: no
 * parent; -2: asks only, -2 comes back for a key that is unknown. A key that is known keeps its index. */
int32_t TVMFFITypeGetOrAllocIndex(const TVMFFIByteArray* type_key, int32_t static_type_index, int32_t type_depth,
                                  int32_t num_child_slots, int32_t child_slots_can_overflow, int32_t parent_type_index);
const TVMFFITypeInfo* TVMFFIGetTypeInfo(int32_t type_index); /* of an index that is unknown: that of kTVMFFIObject */
int TVMFFITypeRegisterField(int32_t type_index, const TVMFFIFieldInfo* info);
int TVMFFITypeRegisterMethod(int32_t type_index, const TVMFFIMethodInfo* info);
int TVMFFITypeRegisterMetadata(int32_t type_index, const TVMFFITypeMetadata* metadata);
int TVMFFITypeRegisterAttr(int32_t type_index, const TVMFFIByteArray* name, const TVMFFIAny* value);
const TVMFFITypeAttrColumn* TVMFFIGetTypeAttrColumn(const TVMFFIByteArray* name); /* null: there is none */

/* init_func fills *handle, which must not be null then, unless that is set already: one of all at a time. deinit_func is given
 * what is there, and *handle is null again. */
int TVMFFIHandleInitOnce(void** handle, int (*init_func)(void** result));
int TVMFFIHandleDeinitOnce(void** handle, int (*deinit_func)(void* handle));

/* Results: a small string or an object. */
int TVMFFIStringFromByteArray(const TVMFFIByteArray* input, TVMFFIAny* out);
int TVMFFIBytesFromByteArray(const TVMFFIByteArray* input, TVMFFIAny* out);
int TVMFFIDataTypeFromString(const TVMFFIByteArray* name, DLDataType* out);
int TVMFFIDataTypeToString(const DLDataType* dtype, TVMFFIAny* out);

/* A new tensor of the prototype's shape, dtype and device (its data and strides are not read); uninitialised, row-major. */
int TVMFFIEnvTensorAlloc(DLTensor* prototype, TVMFFIObjectHandle* out);
/* What TVMFFIEnvTensorAlloc then asks instead; null: ours again. For this thread, and for all threads without one of their own if
 * for_all_threads. *out_original: this thread's own. */
int TVMFFIEnvSetDLPackManagedTensorAllocator(TVMFFITensorAllocator allocator, int for_all_threads,
                                             TVMFFITensorAllocator* out_original);
TVMFFITensorAllocator TVMFFIEnvGetDLPackManagedTensorAllocator(void);
int TVMFFIEnvCheckSignals(void); /* nothing is asked; 0 */

/* Tensors and DLPack's: memory is shared. `from` is taken over unless an error is returned. Alignment in bytes (0: any). */
int TVMFFITensorFromDLPack(DLManagedTensor* from, int32_t require_alignment, int32_t require_contiguous, TVMFFIObjectHandle* out);
int TVMFFITensorFromDLPackVersioned(DLManagedTensorVersioned* from, int32_t require_alignment, int32_t require_contiguous,
                                    TVMFFIObjectHandle* out);
int TVMFFITensorToDLPack(TVMFFIObjectHandle from, DLManagedTensor** out);
int TVMFFITensorToDLPackVersioned(TVMFFIObjectHandle from, DLManagedTensorVersioned** out);
/* A tensor as the prototype has it, on memory that `source` keeps alive; nothing is checked. */
int TVMFFITensorCreateUnsafeView(TVMFFIObjectHandle source, const DLTensor* prototype, TVMFFIObjectHandle* out);

/* The stream that device work of this thread belongs on. */
int TVMFFIEnvSetStream(int32_t device_type, int32_t device_id, void* stream, void** out_original);
void* TVMFFIEnvGetStream(int32_t device_type, int32_t device_id);

/* For compiled kernels. *out is borrowed. The address of each function above is also stored into a variable of the library
 * named like it with two underscores before it, e.g. `void* __TVMFFIFunctionCall;`. */
int TVMFFIEnvModLookupFromImports(TVMFFIObjectHandle library_ctx, const char* name, TVMFFIObjectHandle* out);
int TVMFFIEnvModRegisterContextSymbol(const char* name, void* symbol);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

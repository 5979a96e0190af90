#include "module/object.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include "tutti/function.h"

namespace tutti::ffi {
namespace {

std::atomic_ref<uint64_t> count_of(TVMFFIObject* object) { return std::atomic_ref<uint64_t>(object->combined_ref_count); }

constexpr uint64_t kStrong = 1, kWeak = uint64_t{1} << 32;

enum class Lent : uint8_t { kNo, kYes, kReleased };

/// What modules see: header and cell; our content lies behind.
template <class Cell>
struct Layout : TVMFFIObject {
  Cell cell;
  std::atomic<Lent> lent{Lent::kNo};
};

template <class Content>
void delete_object(void* self, int flags) {
  auto* object = static_cast<Content*>(static_cast<TVMFFIObject*>(self));
  if (object->lent.load() != Lent::kNo) {  // the module released our reference: keep the object, and remember
    object->lent.store(Lent::kReleased);
    return;
  }
  if (flags & 1) object->destroy();
  if (flags & 2) delete object;
}

template <class Content, class... A>
ObjectRef make(int32_t type_index, A&&... content) {
  auto* object = new Content(std::forward<A>(content)...);
  static_cast<TVMFFIObject&>(*object) = {kStrong | kWeak, type_index, 0, &delete_object<Content>};
  return ObjectRef::steal(object);
}

template <class Content>
Content* as(const TVMFFIObject* object) {
  if (!object || object->deleter != &delete_object<Content>) return nullptr;
  return static_cast<Content*>(const_cast<TVMFFIObject*>(object));
}

struct String : Layout<TVMFFIByteArray> {
  explicit String(std::string text) : content(std::move(text)) { cell = {content.data(), content.size()}; }
  void destroy() { std::string().swap(content); }
  std::string content;
};

struct ShapeObject : Layout<TVMFFIShapeCell> {
  explicit ShapeObject(Shape shape) : content(std::move(shape)) { cell = {content.data(), content.size()}; }
  void destroy() { Shape().swap(content); }
  Shape content;
};

struct Array : Layout<TVMFFISeqCell> {
  explicit Array(std::vector<TVMFFIAny> owned) : content(std::move(owned)) {
    cell = {content.data(), static_cast<int64_t>(content.size()), static_cast<int64_t>(content.size()), nullptr};
  }
  void destroy() {  // who owns the only reference may have taken items out
    for (size_t i = 0; i < std::min(content.size(), static_cast<size_t>(cell.size)); ++i)
      if (content[i].type_index >= kTVMFFIObject) dec_ref(content[i].v_obj);
    content.clear();
  }
  std::vector<TVMFFIAny> content;
};

struct ErrorObject : Layout<TVMFFIErrorCell> {
  ErrorObject(std::string k, std::string m, std::string b, std::exception_ptr c)
      : kind(std::move(k)),
        message(std::move(m)),
        backtrace(std::move(b)),
        cause(std::move(c)) {  // NOLINT(bugprone-throw-keyword-missing): a member
    cell = {{kind.data(), kind.size()},
            {message.data(), message.size()},
            {backtrace.data(), backtrace.size()},
            &update,
            nullptr,
            nullptr};
  }
  static void update(TVMFFIObjectHandle self, const TVMFFIByteArray* added, int32_t mode) {
    auto* error = static_cast<ErrorObject*>(static_cast<TVMFFIObject*>(self));
    if (mode == 0) error->backtrace.clear();
    error->backtrace.append(added->data, added->size);
    error->cell.backtrace = {error->backtrace.data(), error->backtrace.size()};
  }
  void destroy() {
    cause = nullptr;
    for (TVMFFIObjectHandle owned : {cell.cause_chain, cell.extra_context})  // a module may have put them there
      if (owned) dec_ref(static_cast<TVMFFIObject*>(owned));
  }
  std::string kind, message, backtrace;
  std::exception_ptr cause;
};

struct Callback : Layout<TVMFFIFunctionCell> {
  Callback(void* s, TVMFFISafeCallType c, void (*d)(void*)) : self(s), call(c), deleter(d) { cell = {&trampoline, nullptr}; }
  static int trampoline(void* object, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
    auto* callback = static_cast<Callback*>(static_cast<TVMFFIObject*>(object));
    return callback->call(callback->self, args, num_args, result);
  }
  void destroy() {
    if (deleter) deleter(self);
  }
  void* self;
  TVMFFISafeCallType call;
  void (*deleter)(void*);
};

struct OpaqueObject : Layout<void*> {
  OpaqueObject(void* handle, void (*d)(void*)) : deleter(d) { cell = handle; }
  void destroy() {
    if (deleter) deleter(cell);
  }
  void (*deleter)(void*);
};

/// A value of ours behind the layout of its type.
template <class Cell>
struct Box : Layout<Cell> {
  explicit Box(Value v) : value(std::move(v)) {}
  void destroy() { value = Value(); }
  Value value;
};
struct TensorBox : Box<DLTensor> {
  explicit TensorBox(Value v) : Box(std::move(v)) {
    const auto& tensor = std::get<Tensor>(value.data());
    shape = tensor.shape();
    strides = tensor.strides();
    // compiled kernels take the first element to be at `data`
    const bool is_plain =
        tensor.device().type == dl::kCPU || tensor.device().type == dl::kCUDA || tensor.device().type == dl::kROCM;
    cell = {.data = is_plain ? tensor.data() : tensor.base(),
            .device = {tensor.device().type, tensor.device().id},
            .ndim = static_cast<int32_t>(shape.size()),
            .dtype = {tensor.dtype().code, tensor.dtype().bits, tensor.dtype().lanes},
            .shape = shape.data(),
            .strides = strides.data(),
            .byte_offset = is_plain ? 0 : tensor.byte_offset()};
  }
  Shape shape, strides;
};
struct FunctionBox : Box<TVMFFIFunctionCell> {
  FunctionBox(Value v, TVMFFISafeCallType call) : Box(std::move(v)) { cell = {call, nullptr}; }
};
struct OpaqueBox : Box<void*> {
  explicit OpaqueBox(Value v) : Box(std::move(v)) { cell = nullptr; }
};

template <class... Contents>
std::atomic<Lent>* lent_flag(TVMFFIObject* object) {
  std::atomic<Lent>* flag = nullptr;
  ((flag = flag ? flag : as<Contents>(object) ? &as<Contents>(object)->lent : nullptr), ...);
  return flag;
}
std::atomic<Lent>* lent_flag_of(TVMFFIObject* object) {
  return lent_flag<String, ShapeObject, Array, TensorBox, FunctionBox, OpaqueBox>(object);
}

}  // namespace

void inc_ref(TVMFFIObject* object) noexcept { count_of(object).fetch_add(kStrong, std::memory_order_relaxed); }

void dec_ref(TVMFFIObject* object) noexcept {
  const uint64_t before = count_of(object).fetch_sub(kStrong, std::memory_order_acq_rel);
  if ((before & UINT32_MAX) != 1 || !object->deleter) return;
  if (before >> 32 == 1) {  // no other weak reference
    object->deleter(object, 3);
    return;
  }
  object->deleter(object, 1);
  if (count_of(object).fetch_sub(kWeak, std::memory_order_acq_rel) >> 32 == 1) object->deleter(object, 2);
}

uint32_t strong_count(const TVMFFIObject* object) noexcept {
  return static_cast<uint32_t>(count_of(const_cast<TVMFFIObject*>(object)).load(std::memory_order_relaxed));
}

ObjectRef make_string(int32_t type_index, std::string content) { return make<String>(type_index, std::move(content)); }
ObjectRef make_shape(Shape shape) { return make<ShapeObject>(kTVMFFIShape, std::move(shape)); }
ObjectRef make_array(std::vector<TVMFFIAny> owned) { return make<Array>(kTVMFFIArray, std::move(owned)); }
ObjectRef make_error(std::string kind, std::string message, std::string backtrace, std::exception_ptr cause) {
  return make<ErrorObject>(kTVMFFIError, std::move(kind), std::move(message), std::move(backtrace), std::move(cause));
}
ObjectRef make_callback(void* self, TVMFFISafeCallType call, void (*deleter)(void*)) {
  return make<Callback>(kTVMFFIFunction, self, call, deleter);
}
ObjectRef make_opaque_object(void* handle, int32_t type_index, void (*deleter)(void*)) {
  return make<OpaqueObject>(type_index, handle, deleter);
}
ObjectRef make_box(Value value, TVMFFISafeCallType call) {
  switch (value.kind()) {
    case Value::Kind::kTensor: return make<TensorBox>(kTVMFFITensor, std::move(value));
    case Value::Kind::kFunction: return make<FunctionBox>(kTVMFFIFunction, std::move(value), call);
    default: return make<OpaqueBox>(kTVMFFIObject, std::move(value));
  }
}

const Value* value_of(const TVMFFIObject* object) {
  if (auto* box = as<TensorBox>(object)) return &box->value;
  if (auto* box = as<FunctionBox>(object)) return &box->value;
  if (auto* box = as<OpaqueBox>(object)) return &box->value;
  return nullptr;
}

std::exception_ptr cause_of(const TVMFFIObject* object) {
  auto* error = as<ErrorObject>(object);
  return error ? error->cause : nullptr;
}

void lend(TVMFFIObject* ours) {
  if (auto* flag = lent_flag_of(ours)) flag->store(Lent::kYes);
}
bool take_back(TVMFFIObject* ours) {
  auto* flag = lent_flag_of(ours);
  if (!flag || flag->exchange(Lent::kNo) == Lent::kYes) return true;
  // our reference is gone from the count: put it back, so that dropping it frees the object
  count_of(ours).store(kStrong | kWeak);
  return false;
}

}  // namespace tutti::ffi

#include "module/call.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>

#include "core/wire.h"
#include "module/check.h"
#include "module/loaded.h"
#include "module/runtime.h"

namespace tutti::ffi {
using namespace detail;
Tensor wrap(const DLTensor& t, std::function<void()> release) {
  const auto dimensions = static_cast<size_t>(t.ndim);
  Shape shape(t.shape, t.shape + dimensions), strides;
  if (t.strides) strides.assign(t.strides, t.strides + dimensions);
  auto* data = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(t.data) + t.byte_offset);  // an empty tensor's may be null
  return Tensor::wrap(data, std::move(shape), {t.dtype.code, t.dtype.bits, t.dtype.lanes}, std::move(release), std::move(strides),
                      {t.device.device_type, t.device.device_id});
}

namespace {

TVMFFIAny pod(int32_t type_index) {
  TVMFFIAny any{};
  any.type_index = type_index;
  return any;
}
TVMFFIAny object(ObjectRef ref) {
  TVMFFIAny any = pod(ref.get()->type_index);
  any.v_obj = ref.release();
  return any;
}

TVMFFIAny text(const char* data, size_t size, int32_t small_type, int32_t object_type) {
  if (size > 7) return object(make_string(object_type, std::string(data, size)));
  TVMFFIAny any = pod(small_type);
  any.small_str_len = static_cast<uint32_t>(size);
  if (size > 0) std::memcpy(any.v_bytes, data, size);
  return any;
}

Bytes to_bytes(const char* data, size_t size) {
  const auto* first = reinterpret_cast<const std::byte*>(data);
  return Bytes(first, first + size);
}

/// The items of a map. Only libtvm_ffi knows how they lie.
Value content_of_map(const Opaque& opaque) {
  const auto& map = std::any_cast<const ObjectRef&>(*opaque.object);
  const bool is_dict = map.get()->type_index == kTVMFFIDict;
  const char* name = is_dict ? "ffi.DictForwardIterFunctor" : "ffi.MapForwardIterFunctor";
  const char* size_name = is_dict ? "ffi.DictSize" : "ffi.MapSize";
  const auto size_of = find_foreign_function(size_name), iterate = find_foreign_function(name);
  if (!iterate || !size_of)
    throw UsageError(
        fmt::format("{} can't be looked into without libtvm_ffi's {}: import tvm_ffi first", opaque.type_name, name));
  constexpr int kKey = 0, kValue = 1, kNext = 2;
  const Value object = opaque;
  const auto size = function_of(size_name, *size_of)(List{object}).as<size_t>();
  List keys, values;
  if (size == 0) return Dict();
  const auto at = function_of(name, *iterate)(List{object}).as<Function>();
  for (bool more = true; more; more = at(List{kNext}).as<bool>()) {
    keys.push_back(at(List{kKey}));
    values.push_back(at(List{kValue}));
  }
  return Dict(std::move(keys), std::move(values));
}

Value foreign_object(TVMFFIObject* object) {
  const TVMFFIByteArray& key = TVMFFIGetTypeInfo(object->type_index)->type_key;
  Opaque opaque{std::make_shared<std::any>(ObjectRef::share(object)), std::string(key.data, key.size), object};
  if (object->type_index == kTVMFFIMap || object->type_index == kTVMFFIDict) opaque.content = &content_of_map;
  return opaque;
}

/// A map of TVM's, if libtvm_ffi is here to make one.
std::optional<Value> to_map(const Dict& dict) {
  const auto make = find_foreign_function("ffi.Map");
  if (!make) return std::nullopt;
  List items;
  for (size_t i = 0; i < dict.size(); ++i) items.push_back(dict.keys()[i]), items.push_back(dict.values()[i]);
  return function_of("ffi.Map", *make)(items);
}

/// The value of a checked object; the object is shared where its content is.
Value from_object(TVMFFIObject* object) {
  if (const Value* ours = value_of(object)) return *ours;
  switch (object->type_index) {
    case kTVMFFIStr: {
      const auto& bytes = cell_of<TVMFFIByteArray>(object);
      return std::string(bytes.data, bytes.size);
    }
    case kTVMFFIBytes: {
      const auto& bytes = cell_of<TVMFFIByteArray>(object);
      return to_bytes(bytes.data, bytes.size);
    }
    case kTVMFFIShape: {
      const auto& shape = cell_of<TVMFFIShapeCell>(object);
      return Shape(shape.data, shape.data + shape.size);
    }
    case kTVMFFITensor: return tensor_of(ObjectRef::share(object));
    case kTVMFFIFunction: return function_of("(a module's function)", ObjectRef::share(object));
    case kTVMFFIArray:
    case kTVMFFIList: {
      const auto& items = cell_of<TVMFFISeqCell>(object);
      List list;
      for (int64_t i = 0; i < items.size; ++i) {
        const TVMFFIAny& item = static_cast<const TVMFFIAny*>(items.data)[i];
        list.push_back(view(item, "an array"));
      }
      return list;
    }
    default: return foreign_object(object);
  }
}

Value from_checked(const TVMFFIAny& any) {
  switch (any.type_index) {
    case kTVMFFINone: return {};
    case kTVMFFIInt: return any.v_int64;
    case kTVMFFIBool: return any.v_int64 != 0;
    case kTVMFFIFloat: return any.v_float64;
    case kTVMFFIOpaquePtr: return any.v_ptr ? make_opaque(any.v_ptr, "void*") : Value();
    case kTVMFFIDataType: return DType{any.v_dtype.code, any.v_dtype.bits, any.v_dtype.lanes};
    case kTVMFFIDevice: return Device{any.v_device.device_type, any.v_device.device_id};
    case kTVMFFISmallStr: return std::string(any.v_bytes, any.small_str_len);
    case kTVMFFISmallBytes: return to_bytes(any.v_bytes, any.small_str_len);
    default: return from_object(any.v_obj);
  }
}

constexpr int kMostCalls = 500;  // modules and functions of ours that call each other

/// Functions that call each other without end are stopped before the stack is.
class Depth {
 public:
  explicit Depth(const std::string& name) {
    if (depth_ >= kMostCalls)
      throw ModuleError("RecursionError", fmt::format("{}: {} calls between modules and tutti inside each other", name, depth_),
                        {});
    ++depth_;
  }
  ~Depth() { --depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  static thread_local int depth_;
};
thread_local int Depth::depth_ = 0;

/// The object of a function of ours is called.
int call_box(void* object, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  const Function function = std::get<Function>(value_of(static_cast<TVMFFIObject*>(object))->data());
  return call_from_c(function, args, num_args, result);
}

}  // namespace

ObjectRef make_box(Value value) { return make_box(std::move(value), &call_box); }

Tensor tensor_of(const ObjectRef& object) {
  const auto& tensor = cell_of<DLTensor>(object.get());
  return wrap(tensor, [object] {});
}

Value take(const TVMFFIAny& owned, const std::string& from) {
  if (std::string why = why_not_valid(owned); !why.empty())
    throw ModuleError("ValueError", fmt::format("{} returned {}", from, why), {});
  const ObjectRef released_here = owned.type_index >= kTVMFFIObject ? ObjectRef::steal(owned.v_obj) : ObjectRef();
  return from_checked(owned);
}

Value view(const TVMFFIAny& any, const std::string& from) {
  const auto refuse = [&](const std::string& why) { throw ModuleError("ValueError", fmt::format("{}: got {}", from, why), {}); };
  switch (any.type_index) {
    case kTVMFFIDLTensorPtr: {
      const auto* tensor = static_cast<const DLTensor*>(any.v_ptr);
      if (!is_readable_array(tensor, sizeof(DLTensor))) refuse("a DLTensor* where no tensor is");
      if (std::string why = why_not_tensor(*tensor); !why.empty()) refuse(why);
      return wrap(*tensor, {});
    }
    case kTVMFFIRawStr:
      if (auto size = readable_length(any.v_c_str)) return std::string(any.v_c_str, *size);
      refuse("a char* where no string is");
      break;
    case kTVMFFIByteArrayPtr: {
      const auto* bytes = static_cast<const TVMFFIByteArray*>(any.v_ptr);
      if (!is_readable_array(bytes, sizeof *bytes) || !is_readable(bytes->data, bytes->size))
        refuse("a byte array where none is");
      return to_bytes(bytes->data, bytes->size);
    }
    case kTVMFFIObjectRValueRef: {  // the giver parts with its reference: *v_ptr is cleared
      auto** slot = static_cast<TVMFFIObject**>(any.v_ptr);
      if (!is_readable_array(slot, sizeof(void*)) || !is_object(*slot)) refuse("a reference to no object");
      TVMFFIAny moved = pod((*slot)->type_index);
      moved.v_obj = *slot;
      Value value = take(moved, from);
      *slot = nullptr;
      return value;
    }
    default:
      if (std::string why = why_not_valid(any); !why.empty()) refuse(why);
  }
  return from_checked(any);
}

TVMFFIAny to_owned(const Value& value) {
  using Kind = Value::Kind;
  const auto& data = value.data();
  TVMFFIAny any{};
  switch (value.kind()) {
    case Kind::kNone: return pod(kTVMFFINone);
    case Kind::kBool: any = pod(kTVMFFIBool), any.v_int64 = std::get<bool>(data); return any;
    case Kind::kInt: any = pod(kTVMFFIInt), any.v_int64 = std::get<int64_t>(data); return any;
    case Kind::kFloat: any = pod(kTVMFFIFloat), any.v_float64 = std::get<double>(data); return any;
    case Kind::kStr: {
      const auto& s = std::get<std::string>(data);
      return text(s.data(), s.size(), kTVMFFISmallStr, kTVMFFIStr);
    }
    case Kind::kBytes: {
      const auto& b = std::get<Bytes>(data);
      return text(reinterpret_cast<const char*>(b.data()), b.size(), kTVMFFISmallBytes, kTVMFFIBytes);
    }
    case Kind::kShape: return object(make_shape(std::get<Shape>(data)));
    case Kind::kDType: {
      const auto& dtype = std::get<DType>(data);
      any = pod(kTVMFFIDataType), any.v_dtype = {dtype.code, dtype.bits, dtype.lanes};
      return any;
    }
    case Kind::kDevice: {
      const auto& device = std::get<Device>(data);
      any = pod(kTVMFFIDevice), any.v_device = {device.type, device.id};
      return any;
    }
    case Kind::kTensor: return std::get<Tensor>(data) ? object(make_box(value)) : pod(kTVMFFINone);
    case Kind::kList: {
      OwnedValues items;
      for (const Value& item : std::get<List>(data)) items.add(item);
      return object(make_array(items.release()));
    }
    case Kind::kFunction: return object(make_box(value));
    case Kind::kOpaque:
      if (auto* foreign = opaque_cast<ObjectRef>(value)) return object(*foreign);
      if (auto* module = opaque_cast<Module>(value); module && !module->object.is_none()) return to_owned(module->object);
      if (auto* pointer = opaque_cast<void*>(value)) return any = pod(kTVMFFIOpaquePtr), any.v_ptr = *pointer, any;
      if (std::get<Opaque>(data).content && find_foreign_function("ffi.Map")) return to_owned(travelling(value));
      return object(make_box(value));
    case Kind::kDict:
      if (const auto map = to_map(std::get<Dict>(data))) return to_owned(*map);
      throw UsageError(to_string(value) + " can't be passed to a module: only libtvm_ffi makes maps; import tvm_ffi first");
    case Kind::kRegister: break;
  }
  throw UsageError(to_string(value) + " can't be passed to a module");
}

OwnedValues::~OwnedValues() {
  for (const TVMFFIAny& value : values_)
    if (value.type_index >= kTVMFFIObject) dec_ref(value.v_obj);
}

LentArgs::LentArgs(Args args) {
  for (const Value& arg : args) values_.add(arg);
  for (const TVMFFIAny& made : values_.all())
    if (made.type_index >= kTVMFFIObject && strong_count(made.v_obj) == 1) lend(made.v_obj);
}

int LentArgs::take_back() {
  int released = -1;
  if (!std::exchange(lent_, false)) return released;
  const auto& values = values_.all();
  for (size_t i = values.size(); i-- > 0;)
    if (values[i].type_index >= kTVMFFIObject && !ffi::take_back(values[i].v_obj)) released = static_cast<int>(i);
  return released;
}

LentArgs::~LentArgs() { take_back(); }

Value call_c(const std::string& name, TVMFFISafeCallType function, void* self, Args args) {
  const Depth depth(name);
  LentArgs lent(args);
  TVMFFIAny result{};
  const int code = function(self, lent.data(), lent.size(), &result);
  const int released = lent.take_back();
  if (code != 0) throw_raised(name, code);
  if (released >= 0)
    throw ModuleError(
        "RuntimeError",
        fmt::format("{} released argument {}, which it had only borrowed; its result is not used", name, released + 1), {});
  return take(result, name);
}

Function function_of(std::string name, ObjectRef object) {
  auto call = [name, object = std::move(object)](Args args) {
    return call_c(name, cell_of<TVMFFIFunctionCell>(object.get()).safe_call, object.get(), args);
  };
  return Function(std::move(name), std::move(call), {});
}

int call_from_c(const Function& function, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) noexcept {
  return guard([&] {
    const Depth depth(function.name());
    List values;
    for (int32_t i = 0; i < num_args; ++i)
      values.push_back(view(args[i], fmt::format("{}: argument {}", function.name(), i + 1)));
    *result = to_owned(function(values));
  });
}

}  // namespace tutti::ffi

// A library of kernels as its authors write it: with tvm-ffi's C++ headers.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

namespace ffi = tvm::ffi;

const float* read(ffi::TensorView x) { return static_cast<const float*>(x.data_ptr()); }

void add_one(ffi::TensorView x, ffi::TensorView y) {
  if (x.ndim() != 1) TVM_FFI_THROW(ValueError) << "x has " << x.ndim() << " axes, expected 1";
  for (int64_t i = 0; i < x.size(0); ++i) static_cast<float*>(y.data_ptr())[i] = read(x)[i] + 1;
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(add_one, add_one);

ffi::Tensor doubled(ffi::TensorView x) {
  ffi::Tensor y = ffi::Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, x.shape(), x.dtype(), x.device());
  for (int64_t i = 0; i < x.numel(); ++i) static_cast<float*>(y.data_ptr())[i] = read(x)[i] * 2;
  return y;
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(doubled, doubled);

ffi::Tensor second_half(ffi::Tensor x) {
  const int64_t half = x.size(0) / 2;
  return x.as_strided(ffi::Shape({half}), ffi::Shape({1}), half);
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(second_half, second_half);

ffi::String greet(ffi::String name) { return "hello, " + std::string(name) + ", from a kernel library"; }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(greet, greet);

int64_t sum(ffi::Shape shape) {
  int64_t total = 0;
  for (int64_t extent : shape) total += extent;
  return total;
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(sum, sum);

ffi::Array<ffi::Any> pair(int64_t a, ffi::Array<ffi::Any> b) { return {a, b.size(), b}; }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(pair, pair);

ffi::Any call(ffi::Function f, ffi::Any x) { return f(x); }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(call, call);

/// An object of the library's own, with an ancestor of its own.
struct Animal : public ffi::Object {
  virtual int64_t legs() const { return 4; }
  static constexpr bool _type_mutable = true;
  static constexpr uint32_t _type_child_slots = 1;
  TVM_FFI_DECLARE_OBJECT_INFO("tutti.test.Animal", Animal, ffi::Object);
};
struct Bird : public Animal {
  int64_t legs() const override { return 2; }
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tutti.test.Bird", Bird, Animal);
};
/// One more than Animal has slots for: whether it is one, the table of types says.
struct Cat : public Animal {
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tutti.test.Cat", Cat, Animal);
};
struct AnimalRef : public ffi::ObjectRef {
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(AnimalRef, ffi::ObjectRef, Animal);
};
ffi::ObjectRef bird() { return ffi::ObjectRef(ffi::make_object<Bird>()); }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(bird, bird);
ffi::ObjectRef cat() { return ffi::ObjectRef(ffi::make_object<Cat>()); }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(cat, cat);
int64_t legs(AnimalRef animal) { return animal->legs(); }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(legs, legs);

/// A global function, as the library is loaded.
#ifndef NAME
#define NAME "kernels"
#endif
TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("tutti.test." NAME, [](int64_t x) { return x + 1; });
}

// Every worker loads a module in plain C (blas.c) and runs it on its share of two vectors.
//   cc -O2 -shared -fPIC examples/custom_module/blas.c -o libblas_module.so
//   mpirun -n 4 build/examples/custom_module ./libblas_module.so
#include <cstdio>

#include "tutti/tutti.h"

static int controller(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: custom_module libblas_module.so\n"), 2;
  auto session = tutti::Session::create();
  const int64_t n = session.num_workers(), share = 1000;
  auto x = tutti::Tensor::empty({n, share}, tutti::kFloat32), y = tutti::Tensor::empty({n, share}, tutti::kFloat32);
  double expected = 0;
  for (int64_t i = 0; i < n * share; ++i) {
    x.values<float>()[static_cast<size_t>(i)] = static_cast<float>(i % 7);
    y.values<float>()[static_cast<size_t>(i)] = static_cast<float>(i % 5);
    expected += (i % 7) * (i % 5 + 2.0 * (i % 7));
  }

  tutti::DModule blas = session.load_vm_module(argv[1]);
  tutti::DRef my_x = session.scatter(x), my_y = session.scatter(y);
  blas["axpy"](2.0, my_x, my_y);
  tutti::DRef part = blas["dot"](my_x, my_y);
  double dot = 0;
  for (int w = 0; w < n; ++w) dot += part.debug_get_from_remote(w).as<double>();
  std::printf("x . (y + 2 x) = %.0f, expected %.0f\n", dot, expected);

  // what goes wrong inside a module is an error here, with the function, the worker and this line
  blas["axpy"](2.0, my_x, "no vector");
  try {
    session.sync_all();
  } catch (const tutti::RemoteError& error) {
    std::printf("%s\n", error.what());
  }
  return dot == expected ? 0 : 1;
}

int main(int argc, char** argv) { return tutti::run(argc, argv, controller); }

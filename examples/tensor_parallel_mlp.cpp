// A layer pair split over the workers as Megatron-LM splits it: W1 by columns, W2 by rows, so that relu needs no communication
// and one allreduce ends it. Weights are multiples of 1/8 and pixels whole numbers: float32 holds every sum exactly, and the
// result must equal the unsplit one bit for bit. mpirun -n 4 build/examples/tensor_parallel_mlp [hidden]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "digits_data.h"
#include "tutti/tutti.h"

namespace {

using tutti::Tensor;

/// y (rows x out) = relu(x w1^T) w2, for the hidden units that w1 (hidden x in) and w2 (hidden x out) hold.
void forward(const Tensor& x, const Tensor& w1, const Tensor& w2, const Tensor& y) {
  const int64_t rows = x.shape()[0], in = x.shape()[1], hidden = w1.shape()[0], out = w2.shape()[1];
  const float *px = x.values<float>().data(), *p1 = w1.values<float>().data(), *p2 = w2.values<float>().data();
  float* py = y.values<float>().data();
  std::fill_n(py, rows * out, 0.0f);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t h = 0; h < hidden; ++h) {
      float sum = 0;
      for (int64_t i = 0; i < in; ++i) sum += px[r * in + i] * p1[h * in + i];
      if (sum > 0)
        for (int64_t o = 0; o < out; ++o) py[r * out + o] += sum * p2[h * out + o];
    }
}

const bool registered = tutti::register_global_func("mlp.forward", [](const Tensor& x, const Tensor& w1, const Tensor& w2) {
  Tensor y = Tensor::empty({x.shape()[0], w2.shape()[1]}, tutti::kFloat32);
  forward(x, w1, w2, y);
  return y;
});

Tensor weights(std::mt19937& random, int64_t rows, int64_t padded, int64_t columns) {
  Tensor w = Tensor::empty({padded, columns}, tutti::kFloat32);
  auto values = w.values<float>();
  std::fill(values.begin(), values.end(), 0.0f);
  for (int64_t i = 0; i < rows * columns; ++i)
    values[static_cast<size_t>(i)] = static_cast<float>(static_cast<int>(random() % 17) - 8) / 8;
  return w;
}

int controller(int argc, char** argv) {
  const int64_t hidden = argc > 1 ? std::atoll(argv[1]) : 97;
  if (hidden < 1 || hidden > 128)
    return std::fprintf(stderr, "tensor_parallel_mlp: hidden must be 1..128 (sums stay exact)\n"), 2;
  const Digits images = read_digits(DIGITS_PATH).test;
  Tensor x = Tensor::empty({images.rows(), Digits::kPixels}, tutti::kFloat32);
  std::transform(images.pixels.begin(), images.pixels.end(), x.values<float>().begin(), [](float p) { return p * 16; });

  auto session = tutti::Session::create();
  const int64_t n = session.num_workers(), share = (hidden + n - 1) / n;  // units that fill up the last shares have weight 0
  std::mt19937 random(1);
  const Tensor w1 = weights(random, hidden, n * share, Digits::kPixels),
               w2 = weights(random, hidden, n * share, Digits::kClasses);

  tutti::DRef all_x = session.broadcast(x);
  tutti::DRef my_w1 = session.scatter(w1.reshape({n, share, Digits::kPixels})),
              my_w2 = session.scatter(w2.reshape({n, share, Digits::kClasses}));
  tutti::DRef y = session.get_global_func("mlp.forward")(all_x, my_w1, my_w2);
  session.allreduce(y, y);

  Tensor expected = Tensor::empty({images.rows(), Digits::kClasses}, tutti::kFloat32);
  forward(x, w1, w2, expected);
  int differing = 0;
  for (int w = 0; w < n; ++w) {
    const Tensor got = y.debug_get_from_remote(w).as<Tensor>();
    if (got.shape() != expected.shape() || !std::ranges::equal(got.values<float>(), expected.values<float>())) ++differing;
  }
  std::printf("workers %lld, %d images, %lld hidden units, %lld a worker: %d workers differ from the unsplit result\n",
              static_cast<long long>(n), images.rows(), static_cast<long long>(hidden), static_cast<long long>(share), differing);
  return differing ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) { return tutti::run(argc, argv, controller); }

// Data-parallel training of a two-layer network on real 8x8 digits, full batch. Every worker computes gradients on its own
// uneven share of the rows; the sums are allreduced and divided by the row count, so any number of workers gives the same
// weights. mpirun -n 4 build/examples/digits [digits.csv.gz [epochs [file for the weights]]]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <random>

#include "digits_data.h"
#include "tutti/tutti.h"

namespace {

constexpr int kIn = Digits::kPixels, kHidden = 48, kOut = Digits::kClasses;
constexpr int kWeights = kHidden * kIn + kHidden + kOut * kHidden + kOut;

/// Views into the weights (or their gradient), which are one flat array.
template <class T>
struct Layers {
  T *w1, *b1, *w2, *b2;
  explicit Layers(T* flat) : w1(flat), b1(w1 + kHidden * kIn), w2(b1 + kHidden), b2(w2 + kOut * kHidden) {}
};

/// Class probabilities of one row.
void forward(const Layers<const float>& net, const float* x, float* hidden, float* p) {
  for (int h = 0; h < kHidden; ++h) {
    float sum = net.b1[h];
    for (int i = 0; i < kIn; ++i) sum += net.w1[h * kIn + i] * x[i];
    hidden[h] = std::max(sum, 0.0f);
  }
  float top = -1e30f, total = 0;
  for (int o = 0; o < kOut; ++o) {
    p[o] = net.b2[o];
    for (int h = 0; h < kHidden; ++h) p[o] += net.w2[o * kHidden + h] * hidden[h];
    top = std::max(top, p[o]);
  }
  for (int o = 0; o < kOut; ++o) total += p[o] = std::exp(p[o] - top);
  for (int o = 0; o < kOut; ++o) p[o] /= total;
}

/// gradient (double, [kWeights + 1]; the last is the loss) = sums over this worker's rows.
void add_gradients(const float* weights, const float* pixels, const int32_t* labels, int64_t rows, double* gradient) {
  const Layers<const float> net(weights);
  const Layers<double> grad(gradient);
  std::vector<float> hidden(kHidden), p(kOut);
  for (int64_t r = 0; r < rows; ++r) {
    const float* x = pixels + r * kIn;
    forward(net, x, hidden.data(), p.data());
    gradient[kWeights] -= std::log(std::max(p[static_cast<size_t>(labels[r])], 1e-20f));
    p[static_cast<size_t>(labels[r])] -= 1;
    for (int h = 0; h < kHidden; ++h) {
      float back = 0;
      for (int o = 0; o < kOut; ++o) {
        grad.w2[o * kHidden + h] += p[static_cast<size_t>(o)] * hidden[static_cast<size_t>(h)];
        back += p[static_cast<size_t>(o)] * net.w2[o * kHidden + h];
      }
      if (hidden[static_cast<size_t>(h)] <= 0) continue;
      grad.b1[h] += back;
      for (int i = 0; i < kIn; ++i) grad.w1[h * kIn + i] += back * x[i];
    }
    for (int o = 0; o < kOut; ++o) grad.b2[o] += p[static_cast<size_t>(o)];
  }
}

const bool registered = [] {
  // Rows begin..end of the training set, which the controller has broadcast: shares are uneven on purpose.
  tutti::register_global_func("digits.gradient", [](const tutti::Tensor& weights, const tutti::Tensor& pixels,
                                                    const tutti::Tensor& labels, const tutti::Tensor& gradient) {
    const int64_t rows = labels.element_count(), n = tutti::worker::count(), w = tutti::worker::id();
    const auto start = [&](int64_t k) { return rows * k * (k + 1) / (n * (n + 1)); };  // worker k has k+1 parts
    auto sums = gradient.values<double>();
    std::fill(sums.begin(), sums.end(), 0.0);
    add_gradients(weights.values<float>().data(), pixels.values<float>().data() + start(w) * kIn,
                  labels.values<int32_t>().data() + start(w), start(w + 1) - start(w), sums.data());
    tutti::worker::world().allreduce(gradient, gradient);
  });
  // Momentum; every worker does the same step on its own copy of the weights. Returns the mean loss.
  tutti::register_global_func("digits.step", [](const tutti::Tensor& weights, const tutti::Tensor& velocity,
                                                const tutti::Tensor& gradient, int64_t rows, double rate) {
    auto w = weights.values<float>();
    auto v = velocity.values<float>();
    auto g = gradient.values<double>();
    for (size_t i = 0; i < w.size(); ++i) {
      v[i] = 0.9f * v[i] - static_cast<float>(rate * g[i] / static_cast<double>(rows));
      w[i] += v[i];
    }
    return g[kWeights] / static_cast<double>(rows);
  });
  return true;
}();

double accuracy(const tutti::Tensor& weights, const Digits& data) {
  const Layers<const float> net(weights.values<float>().data());
  std::vector<float> hidden(kHidden), p(kOut);
  int right = 0;
  for (int r = 0; r < data.rows(); ++r) {
    forward(net, data.pixels.data() + static_cast<ptrdiff_t>(r) * kIn, hidden.data(), p.data());
    right += std::max_element(p.begin(), p.end()) - p.begin() == data.labels[static_cast<size_t>(r)];
  }
  return static_cast<double>(right) / data.rows();
}

int controller(int argc, char** argv) {
  const auto start = std::chrono::steady_clock::now();
  const DigitsSplit data = read_digits(argc > 1 ? argv[1] : DIGITS_PATH);
  const int epochs = argc > 2 ? std::atoi(argv[2]) : 200;
  const int64_t rows = data.train.rows();

  auto session = tutti::Session::create();
  tutti::Tensor initial = tutti::Tensor::full<float>({kWeights}, 0);
  std::mt19937 random(7);
  for (float& w : initial.values<float>()) w = (static_cast<float>(random() % 2001) / 1000.0f - 1.0f) * 0.15f;
  tutti::DRef weights = session.broadcast(initial);
  tutti::DRef velocity = session.broadcast(tutti::Tensor::full<float>({kWeights}, 0));
  tutti::DRef pixels = session.broadcast(tutti::Tensor::from<float>(std::span(data.train.pixels), {rows, kIn}));
  std::vector<int32_t> label_list(data.train.labels.begin(), data.train.labels.end());
  tutti::DRef labels = session.broadcast(tutti::Tensor::from<int32_t>(std::span<const int32_t>(label_list)));
  tutti::DRef gradient = session.empty({kWeights + 1}, tutti::kFloat64);

  auto compute = session.get_global_func("digits.gradient"), step = session.get_global_func("digits.step");
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    compute(weights, pixels, labels, gradient);
    tutti::DRef loss = step(weights, velocity, gradient, rows, 0.5);
    if (epoch % std::max(epochs / 10, 1) == 0)
      std::printf("epoch %3d loss %.6f\n", epoch, loss.debug_get_from_remote(0).as<double>());
  }

  const auto last = weights.debug_get_from_remote(session.num_workers() - 1).as<tutti::Tensor>();
  if (argc > 3) {
    std::ofstream file(argv[3]);
    for (float w : last.values<float>()) file << w << '\n';
  }
  const double test_accuracy = accuracy(last, data.test);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("workers %d test accuracy %.4f seconds %.2f\n", session.num_workers(), test_accuracy, seconds.count());
  return test_accuracy >= 0.95 ? 0 : 2;
}

}  // namespace

int main(int argc, char** argv) { return tutti::run(argc, argv, controller); }

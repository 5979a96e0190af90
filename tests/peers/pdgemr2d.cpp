// Redistributions of a matrix beside ScaLAPACK's pdgemr2d (here of float32: psgemr2d), in turns, in one run. Medians of 5.
//
//   apt-get install libscalapack-openmpi-dev
//   mpicxx -std=c++20 -O2 -Iinclude tests/peers/pdgemr2d.cpp -Lbuild/src -Wl,-rpath,$PWD/build/src -ltutti -lscalapack-openmpi -o
//   build/pdgemr2d mpirun -n 4 build/pdgemr2d [rows and columns, 8192]
//
// ScaLAPACK's matrices are column-major: what is a row here is a column there.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "tutti/distributed.h"
#include "tutti/interop/mpi.h"
#include "tutti/tutti.h"

extern "C" {
int Csys2blacs_handle(MPI_Comm comm);
void Cblacs_gridmap(int* context, int* ranks, int leading, int grid_rows, int grid_columns);
void Cblacs_gridinfo(int context, int* grid_rows, int* grid_columns, int* row, int* column);
void Cpsgemr2d(int m, int n, float* a, int ia, int ja, int* desc_a, float* b, int ib, int jb, int* desc_b, int context);
}

namespace {

using namespace tutti;
using namespace tutti::distributed;

/// How a matrix lies: over a grid of grid_rows x grid_columns workers, in blocks of `block_rows` x `block_columns`, cyclic.
struct Layout {
  std::vector<int> ranks;  ///< column-major
  int grid_rows, grid_columns, block_rows, block_columns;
};

/// This worker's part of an extent x extent matrix, as ScaLAPACK has it.
class Part {
 public:
  Part(const Layout& layout, int extent) : layout_(layout), extent_(extent) {
    int context = Csys2blacs_handle(interop::communicator(worker::world()));
    Cblacs_gridmap(&context, layout_.ranks.data(), layout.grid_rows, layout.grid_rows, layout.grid_columns);
    int rows = 0, columns = 0;
    Cblacs_gridinfo(context, &rows, &columns, &row_, &column_);
    rows_ = held(layout.block_rows, row_, layout.grid_rows);
    columns_ = held(layout.block_columns, column_, layout.grid_columns);
    data_.resize(static_cast<size_t>(rows_) * static_cast<size_t>(columns_));
    const int desc[] = {1, context, extent, extent, layout.block_rows, layout.block_columns, 0, 0, std::max(rows_, 1)};
    std::copy_n(desc, 9, desc_);
  }
  template <class F>
  void each(F f) {  // f(element, its index in the whole)
    for (int j = 0; j < columns_; ++j)
      for (int i = 0; i < rows_; ++i)
        f(data_[static_cast<size_t>(j) * static_cast<size_t>(rows_) + static_cast<size_t>(i)],
          static_cast<int64_t>(place(j, layout_.block_columns, column_, layout_.grid_columns)) * extent_ +
              place(i, layout_.block_rows, row_, layout_.grid_rows));
  }
  void move_to(Part& to) { Cpsgemr2d(extent_, extent_, data_.data(), 1, 1, desc_, to.data_.data(), 1, 1, to.desc_, desc_[1]); }

 private:
  static int place(int local, int block, int at, int of) { return (local / block * of + at) * block + local % block; }
  int held(int block, int at, int of) const {
    int count = 0;
    for (int begin = at * block; begin < extent_; begin += of * block) count += std::min(block, extent_ - begin);
    return count;
  }

  Layout layout_;
  int extent_, row_ = 0, column_ = 0, rows_ = 0, columns_ = 0;
  int desc_[9] = {};
  std::vector<float> data_;
};

struct Case {
  const char* name;
  DeviceMesh mesh;
  const char *from, *to;
  Shape shape;
  Layout before, after;
};

/// Grids of workers in which worker (i, j) of a (rows, columns) mesh is where ScaLAPACK looks for its part.
std::vector<Case> cases(int workers, int extent) {
  const int half = workers % 2 == 0 ? workers / 2 : workers, other = workers / half;  // the mesh is (half, other)
  std::vector<int> in_order(static_cast<size_t>(workers)), turned(in_order.size());
  for (int i = 0; i < half; ++i)
    for (int j = 0; j < other; ++j) {
      in_order[static_cast<size_t>(j + other * i)] = i * other + j;  // there: grid row j, grid column i
      turned[static_cast<size_t>(i + half * j)] = i * other + j;     // there: grid row i, grid column j
    }
  std::vector<int> all(in_order.size());
  for (int i = 0; i < workers; ++i) all[static_cast<size_t>(i)] = i;
  const auto part = [&](int of) { return (extent + of - 1) / of; };
  constexpr int kBlock = 64;
  const int64_t n = extent;
  const Layout blocks{in_order, other, half, part(other), part(half)};
  return {{"S[0] to S[1]",
           DeviceMesh({workers}),
           "S[0]",
           "S[1]",
           {n, n},
           {all, 1, workers, extent, part(workers)},
           {all, workers, 1, part(workers), extent}},
          {"S[0], S[1] to S[1], S[0]",
           DeviceMesh({half, other}),
           "S[0], S[1]",
           "S[1], S[0]",
           {n, n},
           blocks,
           {turned, half, other, part(half), part(other)}},
          {"cyclic blocks of 64 to 2-d blocks",
           DeviceMesh({half, other}),
           "S[1], S[4]",
           "S[0], S[3]",
           {n / half / kBlock, half, kBlock, n / other / kBlock, other, kBlock},
           {in_order, other, half, kBlock, kBlock},
           blocks}};
}

double seconds(const std::function<void()>& once) {
  const auto begin = std::chrono::steady_clock::now();
  once();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

int controller(int argc, char** argv) {
  Session s = Session::create();
  const int extent = argc > 1 ? std::atoi(argv[1]) : 8192;
  const DPackedFunc run = s.get_global_func("peers.pdgemr2d"), make = s.get_global_func("peers.make"),
                    check = s.get_global_func("peers.check");
  std::printf("%d x %d of float32 on %d workers, medians of 5\n", extent, extent, s.num_workers());
  for (int64_t i = 0; const Case& each : cases(s.num_workers(), extent)) {
    const DTensor x = random(s, {{each.shape, kFloat32}, each.mesh, Placement::from_text(each.from)});
    const Placement to = Placement::from_text(each.to);
    if (!(Value(x.redistribute(to).full()) == Value(x.full()))) std::printf("tutti: wrong\n");
    make(i, extent), s.sync_all();
    std::vector<double> ours, theirs;
    for (int turn = 0; turn < 6; ++turn) {  // the first one warms up
      ours.push_back(seconds([&] { x.redistribute(to), s.sync_all(); }));
      theirs.push_back(seconds([&] { run(), s.sync_all(); }));
    }
    check(), s.sync_all();
    for (auto* times : {&ours, &theirs}) times->erase(times->begin()), std::ranges::sort(*times);
    std::printf("%-36s %8.1f ms, pdgemr2d %8.1f ms: x %.2f\n", each.name, 1e3 * ours[2], 1e3 * theirs[2], theirs[2] / ours[2]);
    ++i;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  static std::unique_ptr<Part> from, to;
  register_global_func("peers.make", [](int64_t number, int64_t extent) {
    const Case made = cases(worker::count(), static_cast<int>(extent))[static_cast<size_t>(number)];
    from = std::make_unique<Part>(made.before, static_cast<int>(extent));
    to = std::make_unique<Part>(made.after, static_cast<int>(extent));
    from->each([](float& element, int64_t index) { element = static_cast<float>(index); });
  });
  register_global_func("peers.pdgemr2d", [] { from->move_to(*to); });
  register_global_func("peers.check", [] {
    to->each([](float& element, int64_t index) {
      if (element != static_cast<float>(index)) throw std::runtime_error("pdgemr2d: wrong");
    });
  });
  return run(argc, argv, controller);
}

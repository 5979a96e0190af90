// Every iteration has fresh data, and every member checks its own dst, all of it. Small messages go several at a time, each with
// data and a dst of its own, which holds junk before. The raw library's turn (MPI, on GPUs NCCL) comes after ours.
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "bench/bench.h"
#include "bench/measure.h"
#include "bench/pattern.h"
#include "bench/raw_nccl.h"
#include "core/env.h"
#include "device/streams.h"
#include "tutti/interop/mpi.h"
#include "tutti/tutti.h"

namespace tutti::bench {
using namespace detail;
namespace {

constexpr int64_t kBatchBytes = 64 << 10, kMostInBatch = 100;

enum Way { kOurs, kRaw, kOursInPlace, kRawInPlace, kWays };

struct Task {
  std::string operation;
  DType dtype;
  ReduceOp op;
  int root;
  int64_t count;  // of the larger operand, on a member that has it
};

std::optional<MPI_Datatype> mpi_type(DType d) {
  const std::pair<DType, MPI_Datatype> rows[] = {
      {kInt8, MPI_INT8_T},     {kInt16, MPI_INT16_T},   {kInt32, MPI_INT32_T},   {kInt64, MPI_INT64_T}, {kUInt8, MPI_UINT8_T},
      {kUInt16, MPI_UINT16_T}, {kUInt32, MPI_UINT32_T}, {kUInt64, MPI_UINT64_T}, {kFloat32, MPI_FLOAT}, {kFloat64, MPI_DOUBLE}};
  for (const auto& [dtype, type] : rows)
    if (dtype == d) return type;
  return std::nullopt;
}

MPI_Op mpi_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kProd: return MPI_PROD;
    case ReduceOp::kMin: return MPI_MIN;
    case ReduceOp::kMax: return MPI_MAX;
    default: return MPI_SUM;  // MPI has no average
  }
}

Tensor memory(int64_t count, DType dtype, bool foreign) {
  if (const Device device = worker::device(); device != cpu() || !foreign) return Tensor::empty({count}, dtype, device);
  void* data = std::aligned_alloc(64, static_cast<size_t>(count * dtype.size_bytes() + 64) / 64 * 64);
  return Tensor::wrap(data, {count}, dtype, [data] { std::free(data); });
}

Tensor on_host(const Tensor& tensor) {
  if (tensor.device() == cpu()) return tensor;
  Tensor host = Tensor::empty(tensor.shape(), tensor.dtype());
  host.copy_from(tensor);
  return host;
}

/// One collective as its members see it: how many elements src and dst have, how to run it, what dst must hold.
class Member {
 public:
  Member(Task task, const Comm& comm, MPI_Comm mpi)
      : task_(std::move(task)),
        comm_(comm),
        mpi_(mpi),
        rank_(comm.rank()),
        size_(comm.size()),
        part_(task_.count / size_),
        is_reduction_(task_.operation == "allreduce" || task_.operation == "reduce_scatter"),
        reduced_(Pattern::reduced(task_.dtype, size_, task_.op)) {
    if (worker::device() != cpu()) nccl_ = &RawNccl::of(mpi, worker::device());
    for (int r = 0; r < size_; ++r) of_.push_back(Pattern::of_rank(task_.dtype, r, is_reduction_));
  }

  bool has_in_place() const {
    return task_.operation == "allreduce" || task_.operation == "broadcast" || task_.operation == "allgather" ||
           task_.operation == "reduce_scatter";
  }
  bool sends() const { return !is("sendrecv") || rank_ == 0; }
  int64_t src_count() const { return is("allgather") || is("gather") ? part_ : task_.count; }
  int64_t dst_count() const { return is("reduce_scatter") || is("scatter") ? part_ : task_.count; }
  int64_t dst_at_in_place() const { return is("reduce_scatter") ? rank_ * part_ : 0; }  // of the elements that both share
  int64_t src_at_in_place() const { return is("allgather") ? rank_ * part_ : 0; }

  bool has_raw() const {
    return nccl_ ? nccl_->has(task_.operation, task_.dtype) : mpi_type(task_.dtype) && task_.count <= INT32_MAX;
  }

  /// And junk into dst, if that is another one.
  void fill(const Tensor& src, const Tensor& dst, int64_t phase, bool in_place) const {
    const bool on_host = src.device() == cpu();
    const Tensor data = on_host ? src : Tensor::empty(src.shape(), src.dtype());
    const Tensor junk = on_host ? dst : Tensor::empty(dst.shape(), dst.dtype());
    if (!in_place) std::memset(junk.data(), 0x55, static_cast<size_t>(junk.size_bytes()));
    of_[static_cast<size_t>(rank_)].write(data.data(), data.element_count(), phase);
    if (on_host) return;
    if (!in_place) dst.copy_from(junk);
    src.copy_from(data);
  }

  int64_t count_wrong(const Tensor& there, int64_t phase) const {
    const Tensor dst = on_host(there);
    const auto at = [&](int64_t element) { return static_cast<const char*>(dst.data()) + element * task_.dtype.size_bytes(); };
    if (is("allreduce")) return reduced_.count_wrong(at(0), task_.count, phase);
    if (is("reduce_scatter")) return reduced_.count_wrong(at(0), part_, phase + rank_ * part_);
    if (is("broadcast")) return of_[static_cast<size_t>(task_.root)].count_wrong(at(0), task_.count, phase);
    if (is("scatter")) return of_[static_cast<size_t>(task_.root)].count_wrong(at(0), part_, phase + rank_ * part_);
    if (is("sendrecv")) return rank_ == 1 ? of_[0].count_wrong(at(0), task_.count, phase) : 0;
    if (is("gather") && rank_ != task_.root) return 0;
    int64_t wrong = 0;
    for (int r = 0; r < size_; ++r)
      wrong += of_[static_cast<size_t>(r)].count_wrong(at(r * part_), part_, phase + (is("all_to_all") ? rank_ * part_ : 0));
    return wrong;
  }

  void ours(const Tensor& src, const Tensor& dst) const {
    if (is("allreduce")) comm_.allreduce(src, dst, task_.op);
    else if (is("reduce_scatter")) comm_.reduce_scatter(src, dst, task_.op);
    else if (is("allgather")) comm_.allgather(src, dst);
    else if (is("broadcast")) comm_.broadcast(src, dst, task_.root);
    else if (is("scatter")) comm_.scatter(src, dst, task_.root);
    else if (is("gather")) comm_.gather(src, dst, task_.root);
    else if (is("all_to_all")) comm_.all_to_all(src, dst);
    else if (rank_ == 0) comm_.send(src, 1);
    else if (rank_ == 1) comm_.recv(dst, 0);
  }

  void raw(const Tensor& src, const Tensor& dst, bool in_place) const {
    if (nccl_) return nccl_->run(task_.operation, src, dst, task_.op, task_.root);
    const MPI_Datatype type = *mpi_type(task_.dtype);
    const auto n = static_cast<int>(task_.count), part = static_cast<int>(part_);
    void* from = in_place ? MPI_IN_PLACE : src.data();
    if (is("allreduce")) MPI_Allreduce(from, dst.data(), n, type, mpi_op(task_.op), mpi_);
    else if (is("reduce_scatter"))
      MPI_Reduce_scatter_block(from, in_place ? src.data() : dst.data(), part, type, mpi_op(task_.op), mpi_);
    else if (is("allgather")) MPI_Allgather(from, part, type, dst.data(), part, type, mpi_);
    else if (is("broadcast")) MPI_Bcast(rank_ == task_.root ? src.data() : dst.data(), n, type, task_.root, mpi_);
    else if (is("scatter")) MPI_Scatter(src.data(), part, type, dst.data(), part, type, task_.root, mpi_);
    else if (is("gather")) MPI_Gather(src.data(), part, type, dst.data(), part, type, task_.root, mpi_);
    else if (is("all_to_all")) MPI_Alltoall(src.data(), part, type, dst.data(), part, type, mpi_);
    else if (rank_ == 0) MPI_Ssend(src.data(), n, type, 1, 0, mpi_);
    else if (rank_ == 1) MPI_Recv(dst.data(), n, type, 0, 0, mpi_, MPI_STATUS_IGNORE);
  }

 private:
  bool is(const char* name) const { return task_.operation == name; }

  Task task_;
  const Comm& comm_;
  MPI_Comm mpi_;
  int rank_, size_;
  int64_t part_;
  bool is_reduction_;
  Pattern reduced_;
  std::vector<Pattern> of_;
  const RawNccl* nccl_ = nullptr;
};

constexpr int kTimes = 3;  // when it began, ended, and how long the call took

/// @return float64 [kWays, iterations, kTimes], in us; of a way that was not run 0. Then the two numbers of wrong elements.
Tensor measure(const Task& task, int64_t iterations, int64_t warm_ups, bool check, bool foreign, int64_t skew_us) {
  const Comm comm = worker::world();
  const MPI_Comm mpi = interop::communicator(comm);
  const Member member(task, comm, mpi);
  const int64_t bytes = task.count * task.dtype.size_bytes();
  const int64_t batch = skew_us > 0 ? 1 : std::clamp<int64_t>(kBatchBytes / std::max<int64_t>(bytes, 1), 1, kMostInBatch);
  std::mt19937 random(static_cast<unsigned>(worker::id()) + 1);
  const Tensor out = Tensor::empty({kWays * iterations * kTimes + 2}, kFloat64);
  const auto figures = out.values<double>();
  std::ranges::fill(figures, 0.0);
  for (int way = 0; way < kWays; ++way) {
    const bool is_raw = way == kRaw || way == kRawInPlace, in_place = way >= kOursInPlace;
    if (in_place && !member.has_in_place()) continue;
    if (is_raw && !member.has_raw()) continue;
    // on the host MPI has memory of its own kind in any case; ours is of the kind asked for
    std::vector<std::pair<Tensor, Tensor>> operands;
    for (int64_t b = 0; b < batch; ++b) {
      if (!in_place) {
        operands.emplace_back(memory(member.src_count(), task.dtype, foreign || is_raw),
                              memory(member.dst_count(), task.dtype, foreign || is_raw));
        continue;
      }
      const Tensor whole = memory(task.count, task.dtype, foreign || is_raw);
      operands.emplace_back(whole.slice(member.src_at_in_place(), member.src_at_in_place() + member.src_count()),
                            whole.slice(member.dst_at_in_place(), member.dst_at_in_place() + member.dst_count()));
    }
    for (int64_t i = -warm_ups; i < iterations; ++i) {
      const auto phase = [&](int64_t b) { return (i + warm_ups) * batch + b; };
      for (int64_t b = 0; b < batch; ++b) {
        const auto& [src, dst] = operands[static_cast<size_t>(b)];
        member.fill(src, dst, phase(b), in_place);
      }
      current_streams().finish();
      comm.barrier();
      MPI_Barrier(mpi);
      if (skew_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % static_cast<unsigned>(skew_us)));
      const auto now = [] {
        return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
      };
      const double begin = now();
      for (const auto& [src, dst] : operands) {
        if (is_raw) member.raw(src, dst, in_place);
        else member.ours(src, dst);
      }
      const double started = now();
      current_streams().finish();  // of GPUs
      const double end = now();
      if (i < 0) continue;
      double* times = &figures[static_cast<size_t>((way * iterations + i) * kTimes)];
      times[0] = begin;
      times[1] = begin + (end - begin) / static_cast<double>(batch);
      times[2] = (started - begin) / static_cast<double>(batch);
      if (check && !is_raw)
        for (int64_t b = 0; b < batch; ++b)
          figures[static_cast<size_t>(kWays * iterations * kTimes + in_place)] +=
              static_cast<double>(member.count_wrong(operands[static_cast<size_t>(b)].second, phase(b)));
    }
  }
  return out;
}

const bool registered = register_global_func(
    "bench.collective",
    [](const std::string& operation, DType dtype, const std::string& redop, int64_t root, int64_t count, const Shape& how) {
      return measure({operation, dtype, parse_reduce_op(redop), static_cast<int>(root), count}, how.at(0), how.at(1),
                     how.at(2) != 0, how.at(3) != 0, how.at(4));
    });

const bool host_registered = register_global_func("bench.host", [] { return host_name(); });

CollectiveRow figures_of(const DRef& result, const CollectiveOptions& o, int workers, int64_t count, DType dtype) {
  std::vector<Tensor> all;
  for (int w = 0; w < workers; ++w) all.push_back(result.debug_get_from_remote(w).as<Tensor>());
  const auto median_of = [&](int way, bool of_call = false) -> std::optional<double> {
    std::vector<double> times;
    for (int i = 0; i < o.iterations; ++i) {
      double last_begin = 0, last_end = 0, longest = 0;
      for (const Tensor& t : all) {
        const double* at = &t.values<double>()[static_cast<size_t>((way * o.iterations + i) * kTimes)];
        last_begin = std::max(last_begin, at[0]);
        last_end = std::max(last_end, at[1]);
        longest = std::max(longest, of_call ? at[2] : at[1] - at[0]);
      }
      times.push_back(o.skew_us > 0 && !of_call ? last_end - last_begin : longest);
    }
    const double middle = median(times);
    return middle > 0 ? std::optional(middle) : std::nullopt;
  };
  CollectiveRow row{.size_bytes = count * dtype.size_bytes(),
                    .count = count,
                    .ours = median_of(kOurs),
                    .ours_in_place = median_of(kOursInPlace),
                    .raw = median_of(kRaw),
                    .raw_in_place = median_of(kRawInPlace)};
  if (o.device != "cpu") row.start = median_of(kOurs, true), row.raw_start = median_of(kRaw, true);
  for (const Tensor& t : all) {
    const auto values = t.values<double>();
    row.wrong += static_cast<int64_t>(values[values.size() - 2]);
    row.wrong_in_place += static_cast<int64_t>(values[values.size() - 1]);
  }
  return row;
}

int measure_collective(const std::string& operation, const CollectiveOptions& o) {
  const int64_t least = parse_size(o.least), most = parse_size(o.most);
  const DType dtype = parse_dtype(o.dtype);
  const double factor = o.factor;
  if (least < 1 || most < least || !(factor > 1))
    throw UsageError(fmt::format("sizes from {} to {} by {}: expected 1 <= -b <= -e and -f above 1", o.least, o.most, o.factor));
  Session session = Session::create();
  const int workers = session.num_workers();
  if (o.root < 0 || o.root >= workers) throw UsageError(fmt::format("-r {}: expected a rank below {}", o.root, workers));
  if (operation == "sendrecv" && workers < 2) throw UsageError("sendrecv: expected at least 2 ranks; start it with mpirun -n 2");
  if (o.skew_us > 0) {
    const DRef host = session.get_global_func("bench.host")();
    for (int w = 1; w < workers; ++w)
      if (host.debug_get_from_remote(w).as<std::string>() != host.debug_get_from_remote(0).as<std::string>())
        throw UsageError("--skew: workers are on several hosts, whose clocks differ; expected one host");
  }
  if (o.ccl != "auto") session.init_ccl(o.ccl);  // "auto" might take GPUs; a session begins with the host's
  session.sync_all();
  CollectiveReport report(o, operation, workers);
  auto measure = session.get_global_func("bench.collective");
  int64_t last = 0;
  for (double size = static_cast<double>(least); size <= static_cast<double>(most); size *= factor) {
    int64_t count = static_cast<int64_t>(size) / dtype.size_bytes();
    if (operation != "allreduce" && operation != "broadcast" && operation != "sendrecv")
      count = count / workers * workers;  // it goes in equal parts
    if (count == 0 || count == last) continue;
    last = count;
    const DRef result = measure(operation, dtype, o.redop, o.root, count,
                                Shape{o.iterations, o.warm_ups, o.check, o.memory == "foreign", o.skew_us});
    report.add(figures_of(result, o, workers, count, dtype));
  }
  if (last == 0)
    throw UsageError(fmt::format("no size from {} to {} gives each of {} workers an element of {}; raise -e", o.least, o.most,
                                 workers, o.dtype));
  return report.finish() ? 0 : 1;
}

}  // namespace

int collective(int argc, char** argv, const std::string& operation, const CollectiveOptions& given) {
  CollectiveOptions options = given;
  if (options.device != "cpu") options.ccl = options.device == "cuda" ? "nccl" : "rccl";
  return run(argc, argv, [&](int, char**) { return measure_collective(operation, options); });
}

}  // namespace tutti::bench

#include "control/mpi/mpi_job.h"

#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "control/builtins.h"
#include "control/exit_codes.h"
#include "control/mpi/mpi_channel.h"
#include "control/mpi/peer_watch.h"
#include "control/mpi/place_ranks.h"
#include "control/trace_file.h"
#include "control/worker.h"
#include "core/env.h"
#include "core/log.h"
#include "core/traceback.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

enum class PoolMessage : uint8_t { kStart, kEnd };

struct SegmentAddress {
  int64_t pid;
  int32_t fd;
  uint64_t token;
};

/// MPI wakes nobody: look, and nap longer the longer nothing comes.
template <class Ready>
bool poll(Clock::time_point deadline, Ready&& ready) {
  const auto start = Clock::now();
  for (;;) {
    if (ready()) return true;
    const auto now = Clock::now();
    if (now >= deadline) return false;
    if (now - start < 1ms) yield_cpu();
    else std::this_thread::sleep_for(now - start < 20ms ? 100us : 2000us);
  }
}

/// How many cores the ranks of a machine may use, each some of them.
int cores_together(MPI_Comm machine) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  int known = sched_getaffinity(0, sizeof cores, &cores) == 0, count = 0;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &cores, sizeof cores, MPI_BYTE, MPI_BOR, machine), "MPI_Allreduce");
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &known, 1, MPI_INT, MPI_MIN, machine), "MPI_Allreduce");
  count = known ? CPU_COUNT(&cores) : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(count, 1);
}

std::vector<std::byte> receive(MPI_Comm comm, int from, Tag tag, Clock::time_point deadline) {
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  int flag = 0;
  poll(deadline, [&] {
    check_mpi(MPI_Improbe(from, static_cast<int>(tag), comm, &flag, &message, &status), "MPI_Improbe");
    return flag != 0;
  });
  if (!flag) return {};
  int size = 0;
  MPI_Get_count(&status, MPI_BYTE, &size);
  std::vector<std::byte> bytes(static_cast<size_t>(size));
  check_mpi(MPI_Mrecv(bytes.data(), size, MPI_BYTE, &message, MPI_STATUS_IGNORE), "MPI_Mrecv");
  return bytes;
}

void send(MPI_Comm comm, int to, Tag tag, const std::vector<std::byte>& bytes) {
  check_mpi(MPI_Send(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, to, static_cast<int>(tag), comm), "MPI_Send");
}

constexpr auto kForEver = 24h * 365;

constexpr auto kFirstAbort = 500ms;  // for rank 0 to end the job: mpirun 4.1 may crash when two ranks abort it at once
constexpr auto kForwarded = 100ms;   // a launcher that hears of the abort first may drop what was written before it: why

}  // namespace

void abort_job(int code) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank != 0) std::this_thread::sleep_for(kFirstAbort);
  std::thread([code] {
    std::this_thread::sleep_for(2s);
    _exit(code);
  }).detach();
  std::fflush(stdout);
  std::this_thread::sleep_for(kForwarded);
  MPI_Abort(MPI_COMM_WORLD, code);
  _exit(code);
}

void end_node(Segment& segment) {
  static std::mutex once;  // the leader's thread and the worker's may both come here
  once.lock();
  fmt::print(stderr, "[rank {} {}] the session is over: {}\n", segment.workers().front(), host_name(),
             segment.board().header().why);
  write_traces(segment, {.number = kMostDumps, .reason = "lost"});
  if (segment.layout().num_nodes() > 1) std::this_thread::sleep_for(kGrace);  // other nodes are being told
  abort_job(kExitUncaught);
}

bool MpiJob::launched() {
  if (env_string("TUTTI_ALONE")) return false;
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"})
    if (env_string(name)) return true;
  return false;
}

/// Open MPI 5's TCP says "Unable to find reachable pairing" of ranks that have loopback only, though none needs TCP on one host.
static void keep_tcp_quiet() {
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5
  if (const auto all = env_string("OMPI_COMM_WORLD_SIZE"); all && all == env_string("OMPI_COMM_WORLD_LOCAL_SIZE"))
    setenv("OMPI_MCA_reachable", "weighted", 0);
#endif
}

bool MpiJob::initialise(int* argc, char*** argv) {
  int initialised = 0, finalised = 0, provided = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialised);
  MPI_Finalized(&finalised);
  if (finalised) throw UsageError("MPI has been finalised; what needs its ranks comes before MPI_Finalize");
  if (initialised) MPI_Query_thread(&provided);
  else keep_tcp_quiet(), check_mpi(MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_MULTIPLE)
    throw UsageError(fmt::format("MPI gave thread level {}, tutti needs MPI_THREAD_MULTIPLE ({}): {}", provided,
                                 static_cast<int>(MPI_THREAD_MULTIPLE),
                                 initialised ? "call MPI_Init_thread with it" : "use an MPI library built with it"));
  return !initialised;
}

MpiJob::MpiJob(MPI_Comm comm, bool owns_mpi, const std::string& bind, std::function<void()> finalised)
    : owns_mpi_(owns_mpi), finalised_(std::move(finalised)), control_(duplicate(comm)), data_(duplicate(comm)) {
  data_raw_ = data_.get();
  MPI_Comm_rank(control_.get(), &rank_);
  MPI_Comm_size(control_.get(), &size_);
  register_builtins();
  find_nodes(bind);
  mail_.sent.assign(static_cast<size_t>(size_), 0);
  auto call = [](MPI_Comm, int, void* job, void*) -> int {
    auto& self = *static_cast<MpiJob*>(job);
    self.owns_mpi_ = false;
    if (const auto finalised = std::exchange(self.finalised_, nullptr)) try {
        finalised();
      } catch (const std::exception& error) {  // not through MPI's frames
        log(LogLevel::kError, "MPI_Finalize: {}", error.what());
        abort_job(kExitUncaught);
      }
    return MPI_SUCCESS;
  };
  check_mpi(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, call, &finalise_key_, nullptr), "MPI_Comm_create_keyval");
  check_mpi(MPI_Comm_set_attr(MPI_COMM_SELF, finalise_key_, this), "MPI_Comm_set_attr");
}

MpiJob::~MpiJob() {
  const bool owns_mpi = owns_mpi_;
  // device communicators and sub-communicators went with the sessions; control goes last, then MPI if it is ours
  data_.reset();
  control_.reset();
  if (std::exchange(finalised_, nullptr) && mpi_usable()) MPI_Comm_delete_attr(MPI_COMM_SELF, finalise_key_);
  if (mpi_usable()) MPI_Comm_free_keyval(&finalise_key_);
  if (owns_mpi && mpi_usable()) MPI_Finalize();
}

/// Candidates are the ranks of one machine, as MPI sees it; they are a node if all can map the memory of the first.
/// TUTTI_RANKS_PER_NODE=k cuts machines into nodes of k ranks; TUTTI_SHARED_MEMORY=0 makes every rank a node.
void MpiJob::find_nodes(const std::string& bind) {
  MPI_Comm machine_raw = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(control_.get(), MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &machine_raw), "MPI_Comm_split_type");
  MpiComm machine(machine_raw);
  check_mpi(MPI_Comm_set_errhandler(machine_raw, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  int local_rank = 0, local_size = 1, first = rank_;
  MPI_Comm_rank(machine_raw, &local_rank);
  MPI_Comm_size(machine_raw, &local_size);
  check_mpi(MPI_Bcast(&first, 1, MPI_INT, 0, machine_raw), "MPI_Bcast");

  // what can fail on one rank alone comes first: the others must not wait for it
  SharedMemory probe;  // a random token of the first one, read by all
  SegmentAddress address{};
  int shared = 1, per_node = local_size;
  auto binding = topology::Binding::kNone;
  std::exception_ptr failure;
  try {
    shared = env_int("TUTTI_SHARED_MEMORY", 1, 0, 1) != 0;
    per_node = static_cast<int>(env_int("TUTTI_RANKS_PER_NODE", local_size, 1, 1 << 20));
    const auto told = env_string("TUTTI_BIND");
    if (owns_mpi_ || told)
      binding = topology::parse_binding(told.value_or(bind));  // other programs' threads are their own, unless the user says so
    if (local_rank == 0) {
      probe = SharedMemory::create(4096);
      address = {getpid(), probe.fd(), std::random_device{}() | (uint64_t{std::random_device{}()} << 32)};
      std::memcpy(probe.data(), &address.token, sizeof address.token);
    }
  } catch (...) {
    failure = std::current_exception();
  }
  int failed = failure ? rank_ : size_;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MIN, control_.get()), "MPI_Allreduce");
  if (failure) std::rethrow_exception(failure);
  if (failed < size_) {
    std::this_thread::sleep_for(500ms);  // the first rank that ends may end all: it is to have said why before
    throw SystemError(fmt::format("rank {} can't join the job; it says why", failed));
  }
  check_mpi(MPI_Bcast(&address, sizeof address, MPI_BYTE, 0, machine_raw), "MPI_Bcast");
  if (shared && local_rank != 0) try {
      const SharedMemory peer = SharedMemory::open(static_cast<pid_t>(address.pid), address.fd);
      shared = peer.size_bytes() == 4096 && std::memcmp(peer.data(), &address.token, sizeof address.token) == 0;
    } catch (const SystemError& error) {
      log(LogLevel::kInfo, "no shared memory with rank {}: {}; every rank becomes a node of its own", first, error.what());
      shared = 0;
    }
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &shared, 1, MPI_INT, MPI_MIN, machine_raw), "MPI_Allreduce");
  auto agreed = static_cast<int>(binding);  // programs of one job may differ; nothing, if anybody wants nothing
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &agreed, 1, MPI_INT, MPI_MAX, machine_raw), "MPI_Allreduce");
  place_ranks(machine_raw, static_cast<topology::Binding>(agreed));
  machine_cores_ = cores_together(machine_raw);
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &machine_cores_, 1, MPI_INT, MPI_MIN, control_.get()), "MPI_Allreduce");
  const int mine[2] = {shared ? first + (local_rank / per_node) * (size_ + 1) : -1 - rank_, first};
  std::vector<int> all(2 * static_cast<size_t>(size_));
  check_mpi(MPI_Allgather(mine, 2, MPI_INT, all.data(), 2, MPI_INT, control_.get()), "MPI_Allgather");

  std::vector<int> names;  // nodes are numbered by their first rank
  for (int r = 0; r < size_; ++r) {
    const int name = all[2 * static_cast<size_t>(r)];
    auto it = std::find(names.begin(), names.end(), name);
    node_of_.push_back(static_cast<int32_t>(it - names.begin()));
    if (it == names.end()) names.push_back(name);
    machine_of_.push_back(all[2 * static_cast<size_t>(r) + 1]);
  }
}

int MpiJob::num_nodes() const { return 1 + *std::max_element(node_of_.begin(), node_of_.end()); }

int MpiJob::ranks_per_node() const {
  const auto on_first = std::count(node_of_.begin(), node_of_.end(), 0);
  for (int node = 0; node < num_nodes(); ++node)
    if (std::count(node_of_.begin(), node_of_.end(), node) != on_first) return 0;
  return static_cast<int>(on_first);
}

void MpiJob::serve() {
  for (;;) {
    const auto bytes = receive(control_.get(), 0, Tag::kPool, Clock::now() + kForEver);
    Reader in(bytes);
    if (in.get<PoolMessage>() == PoolMessage::kEnd) return drain();
    serve_session(decode_layout(in));
  }
}

void MpiJob::end() {
  Writer out;
  out.put(PoolMessage::kEnd);
  for (int rank = 1; rank < size_; ++rank) send(control_.get(), rank, Tag::kPool, out.bytes());
  drain();
}

/// Receives what leaders sent to those that had ended. All ranks are here.
void MpiJob::drain() {
  if (num_nodes() == 1) return;
  int64_t expected = 0;
  check_mpi(MPI_Reduce_scatter_block(mail_.sent.data(), &expected, 1, MPI_INT64_T, MPI_SUM, control_.get()),
            "MPI_Reduce_scatter_block");
  for (; mail_.received < expected; ++mail_.received)
    if (receive(control_.get(), MPI_ANY_SOURCE, Tag::kLeader, Clock::now() + kGrace).empty()) return;  // lost: none is empty
}

namespace {

/// The leader makes its node's segment and tells the others where it is.
std::unique_ptr<Segment> join_segment(MPI_Comm control, const Layout& layout, int rank) {
  const int node = layout.node_of[static_cast<size_t>(rank)];
  const auto workers = layout.workers_of(node);
  if (workers.front() == rank) {
    auto segment = std::make_unique<Segment>(workers.size() > 1 ? Segment::Kind::kShared : Segment::Kind::kPrivate, layout, node);
    Writer out;
    out.put(static_cast<int64_t>(getpid()));
    out.put(static_cast<int32_t>(segment->fd()));
    for (int32_t worker : workers)
      if (worker != rank) send(control, worker, Tag::kSegment, out.bytes());
    return segment;
  }
  const auto bytes = receive(control, workers.front(), Tag::kSegment, Clock::now() + kForEver);
  Reader in(bytes);
  const auto pid = in.get<int64_t>();
  return std::make_unique<Segment>(SharedMemory::open(static_cast<pid_t>(pid), in.get<int32_t>()), layout, node);
}

}  // namespace

void MpiJob::serve_session(const Layout& layout) {
  auto segment = join_segment(control_.get(), layout, rank_);
  const int node = layout.node_of[static_cast<size_t>(rank_)];
  std::unique_ptr<LeaderThread> leader;
  if (node != 0 && layout.leader_of(node) == rank_)
    leader = std::make_unique<LeaderThread>(*segment, node, control_.get(), mail_);
  try {
    Worker worker(*segment, rank_, nullptr, data());
    const PeerWatch watch(*segment, rank_);
    send(control_.get(), 0, Tag::kReady, {});
    worker.serve();
  } catch (const ThreadEnds&) {
    end_if_abandoned(*segment);
    throw;
  } catch (...) {
    if (leader) leader->stop_now();
    throw;
  }
  end_if_abandoned(*segment);
  if (leader) leader->stop_after(segment->board().member(rank_).finished_seq.load());
}

/// Ranks may be inside MPI calls that the lost one will never join: nothing short of the job can be ended.
void MpiJob::end_if_abandoned(Segment& segment) {
  try {
    segment.check_not_abandoned();
  } catch (const TransportError& error) {
    if (segment.workers().front() == rank_) end_node(segment);
    std::this_thread::sleep_for(3 * kGrace);  // its leader writes what is to be written, and ends us
    fmt::print(stderr, "[rank {} {}] {}\n", rank_, host_name(), error.what());
    abort_job(kExitUncaught);
  }
}

std::unique_ptr<Channel> MpiJob::start_session(int num_workers, int num_groups, Exchange& exchange,
                                               std::chrono::milliseconds timeout) {
  Layout layout = Layout::one_node(num_workers, num_groups);
  layout.node_of.assign(node_of_.begin(), node_of_.begin() + num_workers);
  std::vector<int32_t> names;  // nodes without a worker fall out
  for (int32_t& node : layout.node_of) {
    auto it = std::find(names.begin(), names.end(), node);
    if (it == names.end()) it = names.insert(names.end(), node);
    node = static_cast<int32_t>(it - names.begin());
  }
  layout.machine_ranks = 1;
  layout.machine_cores = machine_cores_;
  int world = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  if (size_ < world)  // the rest of the job may be at work on the same machine
    layout.machine_ranks = static_cast<int32_t>(
        std::max(env_int("OMPI_COMM_WORLD_LOCAL_SIZE", 1, 0, 1 << 20), env_int("MPI_LOCALNRANKS", 1, 0, 1 << 20)));
  for (int r = 0; r < num_workers; ++r)
    layout.machine_ranks = std::max<int32_t>(
        layout.machine_ranks, static_cast<int32_t>(std::count(machine_of_.begin(), machine_of_.begin() + num_workers,
                                                              machine_of_[static_cast<size_t>(r)])));
  Writer out;
  out.put(PoolMessage::kStart);
  encode(out, layout);
  starting_ = true;
  for (int rank = 1; rank < num_workers; ++rank) send(control_.get(), rank, Tag::kPool, out.bytes());
  auto segment = join_segment(control_.get(), layout, 0);
  const auto deadline = Clock::now() + timeout;
  std::vector<bool> ready(static_cast<size_t>(num_workers), false);
  for (int missing = num_workers - 1; missing > 0; --missing) {
    int flag = 0;
    MPI_Status status;
    poll(deadline, [&] {
      check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, static_cast<int>(Tag::kReady), control_.get(), &flag, &status), "MPI_Iprobe");
      return flag != 0;
    });
    if (!flag) {
      std::string silent;
      for (int r = 1; r < num_workers; ++r)
        if (!ready[static_cast<size_t>(r)]) silent += fmt::format(" {}", r);
      throw TransportError(fmt::format("rank(s){} did not join the session within {} ms; is something else running there?",
                                       silent, timeout.count()));
    }
    check_mpi(MPI_Recv(nullptr, 0, MPI_BYTE, status.MPI_SOURCE, static_cast<int>(Tag::kReady), control_.get(), MPI_STATUS_IGNORE),
              "MPI_Recv");
    ready[static_cast<size_t>(status.MPI_SOURCE)] = true;
  }
  auto channel = std::make_unique<MpiChannel>(std::move(segment), *this, exchange);
  starting_ = false;
  return channel;
}

}  // namespace tutti

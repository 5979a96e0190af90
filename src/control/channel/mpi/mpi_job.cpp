#include "control/channel/mpi/mpi_job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

#include "control/channel/mpi/end_job.h"
#include "control/channel/mpi/mpi_workers.h"
#include "control/channel/mpi/peer_watch.h"
#include "control/channel/mpi/tags.h"
#include "control/worker/worker.h"
#include "core/env.h"
#include "core/exit_codes.h"
#include "core/log.h"
#include "core/settings.h"
#include "core/traceback.h"

namespace tutti::detail {
namespace {

using namespace std::chrono_literals;

enum class PoolMessage : uint8_t { kStart, kEnd };

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

}  // namespace

bool MpiJob::launched() {
  if (settings().alone) return false;
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
  nodes_ = find_nodes(control_.get(), owns_mpi_, bind);
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
  if (nodes_.count() == 1) return;
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

std::unique_ptr<Workers> MpiJob::start_session(int num_workers, int num_groups, Exchange& exchange,
                                               std::chrono::milliseconds timeout) {
  Layout layout = Layout::one_node(num_workers, num_groups);
  layout.node_of.assign(nodes_.node_of.begin(), nodes_.node_of.begin() + num_workers);
  std::vector<int32_t> names;  // nodes without a worker fall out
  for (int32_t& node : layout.node_of) {
    auto it = std::find(names.begin(), names.end(), node);
    if (it == names.end()) it = names.insert(names.end(), node);
    node = static_cast<int32_t>(it - names.begin());
  }
  layout.machine_ranks = 1;
  layout.machine_cores = nodes_.machine_cores;
  int world = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  if (size_ < world)  // the rest of the job may be at work on the same machine
    layout.machine_ranks = static_cast<int32_t>(
        std::max(env_int("OMPI_COMM_WORLD_LOCAL_SIZE", 1, 0, 1 << 20), env_int("MPI_LOCALNRANKS", 1, 0, 1 << 20)));
  for (int r = 0; r < num_workers; ++r)
    layout.machine_ranks = std::max<int32_t>(
        layout.machine_ranks, static_cast<int32_t>(std::count(nodes_.machine_of.begin(), nodes_.machine_of.begin() + num_workers,
                                                              nodes_.machine_of[static_cast<size_t>(r)])));
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
  auto channel = std::make_unique<MpiWorkers>(std::move(segment), exchange, control_.get(), mail_, data(),
                                              [this](Segment& own) { end_if_abandoned(own); });
  starting_ = false;
  return channel;
}

}  // namespace tutti::detail

// tutti/interop/mpi.h: by the name in argv[1], at any number of ranks; check_ways.sh looks at exit codes and output.
#include "tutti/interop/mpi.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <thread>

#include "tutti/tutti.h"

using namespace tutti;

namespace {

void expect(bool what, const char* text, int line) {
  if (what) return;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::fprintf(stderr, "rank %d line %d: %s\n", rank, line, text);
  MPI_Abort(MPI_COMM_WORLD, 5);
}
#define EXPECT(x) expect((x), #x, __LINE__)

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

int size_of(MPI_Comm comm) {
  int n = 0;
  MPI_Comm_size(comm, &n);
  return n;
}
int rank_in(MPI_Comm comm) {
  int r = 0;
  MPI_Comm_rank(comm, &r);
  return r;
}

/// The members' own messages on the communicator of a Comm: a ring, and a sum.
int64_t talk(const Comm& peers) {
  const MPI_Comm comm = interop::communicator(peers);
  EXPECT(rank_in(comm) == peers.rank() && size_of(comm) == peers.size());
  int mine = worker::id(), left = -1;
  MPI_Sendrecv(&mine, 1, MPI_INT, (peers.rank() + 1) % peers.size(), 7, &left, 1, MPI_INT,
               (peers.rank() + peers.size() - 1) % peers.size(), 7, comm, MPI_STATUS_IGNORE);
  EXPECT(left == peers.workers()[static_cast<size_t>((peers.rank() + peers.size() - 1) % peers.size())]);
  int64_t sum = 0, one = 1;
  MPI_Allreduce(&one, &sum, 1, MPI_INT64_T, MPI_SUM, comm);
  EXPECT(interop::communicator(peers) == comm);  // made once
  return sum;
}

const bool registered[] = {
    register_global_func("interop.world", [] { return talk(worker::world()); }),
    register_global_func("interop.group", [] { return talk(worker::group()); }),
    register_global_func("interop.split", [] { return talk(worker::world().split(worker::id() % 2, -worker::id())); }),
    // a communicator lives as long as the command, also when its Comm does not: each holds one of the leader's 64 slots
    register_global_func("interop.many_splits",
                         [](int n) {
                           std::set<MPI_Comm> different;
                           for (int i = 0; i < n; ++i) different.insert(interop::communicator(worker::world().split(0)));
                           return static_cast<int>(different.size());
                         }),
    register_global_func("interop.keep_a_comm",
                         [] {  // the last session's is refused, also by the same command of the next
                           static std::map<int, Comm> kept;
                           std::string why;
                           if (auto it = kept.find(worker::id()); it != kept.end()) {
                             why = message_of([&] { interop::communicator(it->second); });
                             kept.erase(it);
                           }
                           kept.emplace(worker::id(), worker::world());
                           return why;
                         }),
    register_global_func("interop.some_throw",
                         [] {
                           if (worker::id() == worker::count() - 1) throw std::runtime_error("not me");
                           interop::communicator(worker::world());
                         }),
    register_global_func("interop.sleep", [] { std::this_thread::sleep_for(std::chrono::seconds(1)); }),
    register_global_func("interop.finalize", [] { MPI_Finalize(); }),
    register_global_func("interop.nested", [] { interop::session_from(MPI_COMM_SELF); }),
    register_global_func("interop.fail", [] { throw std::runtime_error("told to"); }),
};

void use(Session& s) {
  const int n = s.num_workers();
  DRef world = s.get_global_func("interop.world")(), group = s.get_global_func("interop.group")();
  DRef split = s.get_global_func("interop.split")();
  for (int w = 0; w < n; ++w) {
    EXPECT(world.debug_get_from_remote(w) == Value(n));
    EXPECT(group.debug_get_from_remote(w) == Value(n / s.num_groups()));
    EXPECT(split.debug_get_from_remote(w) == Value((n + 1 - w % 2) / 2));
  }
  s.get_global_func("interop.world")();  // again, on the same communicators
  s.init_ccl("mpi");
  s.get_global_func("interop.world")();
  s.get_global_func("interop.split")();
  s.sync_all();
}

void sessions() {
  const int rank = rank_in(MPI_COMM_WORLD), size = size_of(MPI_COMM_WORLD);
  static bool kept_before = false;
  for (int round = 0; round < 3; ++round, kept_before = true) {
    Session s = interop::session_from(MPI_COMM_WORLD, {.num_groups = round == 1 ? size : 1});
    EXPECT(static_cast<bool>(s) == (rank == 0));
    if (s) {
      EXPECT(s.num_workers() == size && s.kind() == "mpi");
      DRef why = s.get_global_func("interop.keep_a_comm")();
      for (int w = 0; w < size; ++w) EXPECT(has(why.debug_get_from_remote(w).as<std::string>(), kept_before ? "outlived" : ""));
      use(s);
      EXPECT(s.get_global_func("interop.many_splits")(100).debug_get_from_remote(size - 1) == Value(100));
      EXPECT(has(message_of([] { Session::create(); }), "the ranks are taken by the session made at"));
      EXPECT(has(message_of([] { interop::session_from(MPI_COMM_WORLD); }), "already; shut that session down first"));
      s.get_global_func("interop.nested")();
      EXPECT(has(message_of([&] { s.sync_all(); }), "worker functions can't make sessions"));
      if (size > 1) {  // a member that fails before it joins fails all, and the next try works
        s.get_global_func("interop.some_throw")();
        EXPECT(has(message_of([&] { s.sync_all(); }), "not me"));
      }
      use(s);
    }
    if (round == 0) s.shutdown();  // else the last handle
  }
}

void fewer() {  // ranks beyond num_workers wait until it is over
  Session s = interop::session_from(MPI_COMM_WORLD, {.num_workers = 1});
  if (s) use(s), EXPECT(s.num_workers() == 1);
}

void halves() {  // in reverse order, each with a session of its own at the same time
  const int rank = rank_in(MPI_COMM_WORLD);
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
  Session s = interop::session_from(half);
  if (s) {
    EXPECT(rank_in(half) == 0 && s.num_workers() == size_of(half));
    use(s);
  }
  s.shutdown();
  int peers = 0, one = 1;
  MPI_Allreduce(&one, &peers, 1, MPI_INT, MPI_SUM, half);
  EXPECT(peers == size_of(half));
  MPI_Comm_free(&half);
}

void misuse() {
  const int rank = rank_in(MPI_COMM_WORLD), size = size_of(MPI_COMM_WORLD);
  EXPECT(has(message_of([] { interop::session_from(MPI_COMM_NULL); }), "got MPI_COMM_NULL"));
  if (size > 1) {
    MPI_Comm half = MPI_COMM_NULL, across = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank == 0 ? 1 : 0, 1, &across);
    EXPECT(has(message_of([&] { interop::session_from(across); }), "an intercommunicator"));
    MPI_Comm_free(&across);
    MPI_Comm_free(&half);
  }
  for (SessionOptions bad :
       {SessionOptions{.num_workers = size + 1}, SessionOptions{.num_groups = size + 1}, SessionOptions{.num_workers = -1}}) {
    bool made = true;
    const std::string message = message_of([&] { made = static_cast<bool>(interop::session_from(MPI_COMM_WORLD, bad)); });
    EXPECT(rank == 0 ? !message.empty() : message.empty() && !made);
  }
  EXPECT(has(message_of([] { interop::communicator(worker::world()); }), "works only inside a function"));
  EXPECT(has(message_of([] { Session::create(); }), "does not use tutti::run"));
  ThreadedSession threads(2);
  threads.get_global_func("interop.world")();
  EXPECT(has(message_of([&] { threads.sync_all(); }), "are no ranks of an MPI job"));
  sessions();  // nothing of this did harm
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  int provided = 0;
  if (what == "single") {
    MPI_Init(&argc, &argv);
    const std::string why = message_of([] { interop::session_from(MPI_COMM_WORLD); });
    EXPECT(has(why, "call MPI_Init_thread with it"));
    MPI_Finalize();
    return 0;
  }
  if (what == "without_mpi") {
    if (!has(message_of([] { interop::session_from(MPI_COMM_WORLD); }), "MPI is not initialised")) return 4;
    return 0;
  }
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  if (what == "sessions") sessions(), fewer(), halves(), sessions();
  if (what == "misuse") misuse();
  if (what == "lost") {  // MPI's own barrier stands for what the ranks do after the session
    Session s = interop::session_from(MPI_COMM_WORLD);
    if (s) {
      s.get_global_func("interop.fail")();
      EXPECT(has(message_of([&] { s.shutdown(); }), "told to"));
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  if (what == "finalize_live") {  // MPI_Finalize with a live session shuts it down; later calls say so
    Session s = interop::session_from(MPI_COMM_WORLD);
    DRef kept = s ? s.get_global_func("runtime.disco.world_size")() : DRef();
    if (s) s.sync_all();
    MPI_Finalize();
    if (s && !has(message_of([&] { s.sync_all(); }), "shut down")) return 4;
    if (!has(message_of([] { interop::session_from(MPI_COMM_WORLD); }), "or finalised")) return 4;
    std::puts("finalised");
    return 0;
  }
  if (what == "finalize_in_run") {  // the controller ends MPI, as mpi4py's exit handler may
    const int code = run(argc, argv, [](int, char**) {
      Session s = Session::create();
      s.get_global_func("runtime.disco.world_size")().debug_get_from_remote(0);
      s.sync_all();
      MPI_Finalize();
      if (!has(message_of([] { Session::create(); }), "MPI has been finalised")) return 4;
      std::puts("finalised");
      return 3;
    });
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (!finalized) MPI_Finalize();
    return code;
  }
  if (what == "finalize_busy") {
    Session s = interop::session_from(MPI_COMM_WORLD);
    if (s) s.get_global_func("interop.sleep")();
    MPI_Finalize();
    return 0;
  }
  if (what == "finalize_in_worker") {
    Session s = interop::session_from(MPI_COMM_WORLD);
    if (s) s.get_global_func("interop.finalize")(), s.sync_all();
  }
  MPI_Finalize();
  return 0;
}

// Programs write what their workers did into the folder that TUTTI_TRACE names.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "support/session_kinds.h"
#include "trace/trace.h"

namespace {

using namespace tutti;
using namespace tutti_test;
using namespace std::chrono_literals;

const bool registered = [] {
  register_global_func("trace.fails", [](int on) {
    if (worker::id() == on) throw std::runtime_error("told to");
  });
  register_global_func("trace.fails_first", [](int on) {
    if (worker::id() == on) throw std::runtime_error("told to");
    worker::world().barrier();
  });
  register_global_func("trace.differs", [] {
    const auto mine = Tensor::full<float>({worker::id() == 0 ? 10 : 20}, 1);
    worker::world().allreduce(mine, mine);
  });
  register_global_func("trace.waits_for", [](int on, const std::string& file) {
    for (int i = 0; worker::id() == on && i < 400 && !std::filesystem::exists(file); ++i) std::this_thread::sleep_for(50ms);
    worker::world().barrier();
  });
  return true;
}();

/// A folder that programs write their traces into while this lives.
struct Folder {
  std::string path;
  Folder() {
    char name[] = "/tmp/tutti-test-XXXXXX";
    path = mkdtemp(name);
    setenv("TUTTI_TRACE", path.c_str(), 1);
  }
  ~Folder() {
    unsetenv("TUTTI_TRACE");
    std::error_code refused;
    for (int i = 0; i < 100 && (std::filesystem::remove_all(path, refused), std::filesystem::exists(path)); ++i)
      std::this_thread::sleep_for(10ms);  // another node writes its files still
  }
  int files() const {
    int n = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path)) n += entry.path().extension() == ".json";
    return n;
  }
};

std::vector<trace::Session> read(const Folder& folder) {
  std::vector<std::string> problems;
  auto sessions = trace::read_folder(folder.path, problems);
  EXPECT_TRUE(problems.empty()) << problems.front();
  for (const auto& session : sessions)
    for (const auto& [id, worker] : session.by_worker)
      for (const auto& [number, e] : worker.events) EXPECT_TRUE(!e.end || *e.end >= e.begin) << e.what;
  return sessions;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(TraceFiles, steps_of_programs_are_there_and_short_ones_leave_room) {
  Folder folder;
  {
    Session s = make_session();
    const auto echo = s.get_global_func("tutti.echo"), fails = s.get_global_func("trace.fails");
    auto recording = s.record("steps");
    echo(1);
    fails(-1);
    const Program program = recording.finish();
    program.repeat(100000);
    s.barrier();
    s.shutdown();
  }
  const auto sessions = read(folder);
  ASSERT_EQ(sessions.size(), 1U);
  const std::string timeline = trace::timeline(sessions);
  EXPECT_TRUE(has(timeline, "\"1: tutti.echo\"") && has(timeline, "\"2: trace.fails\"")) << timeline.substr(0, 2000);
  EXPECT_TRUE(has(timeline, "\"program steps\"") && has(timeline, "barrier"));  // nothing has pushed them out
  for (const auto& [id, worker] : sessions[0].by_worker) {
    int steps = 0;
    for (const auto& [number, e] : worker.events) steps += e.step > 0;
    EXPECT_GE(steps, 2);
    EXPECT_LT(steps, 1900);
  }
  EXPECT_FALSE(has(trace::report(sessions[0]), "steps")) << trace::report(sessions[0]);
}

TEST(TraceFiles, an_error_is_told_and_only_the_owner_reads_it) {
  Folder folder;
  const int last = workers() - 1;
  {
    Session s = make_session();
    s.get_global_func("trace.fails")(last);
    EXPECT_THROW(s.sync_all(), RemoteError);
    s.get_global_func("trace.differs")();
    if (workers() > 1) {
      EXPECT_THROW(s.sync_all(), RemoteError);
    }
    s.shutdown();
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder.path)) {
    struct stat info {};
    if (stat(entry.path().c_str(), &info) != 0) {
      ASSERT_EQ(errno, ENOENT) << entry.path();  // another node has given it its name meanwhile
      continue;
    }
    EXPECT_EQ(info.st_mode & 0777, 0600u) << entry.path();
  }
  auto sessions = read(folder);
  for (int tries = 0; tries < 50 && sessions.size() == 1 && has(trace::report(sessions[0]), "behind");
       ++tries) {  // other nodes write in their own time
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    sessions = read(folder);
  }
  ASSERT_EQ(sessions.size(), 1u);
  EXPECT_EQ(std::ssize(sessions[0].by_worker), workers());
  const std::string text = trace::report(sessions[0]);
  EXPECT_TRUE(has(text, "written on error, shutdown")) << text;
  EXPECT_TRUE(has(text, "first failing command 2: trace.fails on worker " + std::to_string(last) + "\n")) << text;
  EXPECT_FALSE(has(text, "no trace of")) << text;
  EXPECT_FALSE(has(text, "behind")) << text;
  if (workers() > 1) {
    EXPECT_TRUE(has(text, "does not fit together: worker 0: allreduce sum float32 x 10; worker")) << text;
  }
  EXPECT_TRUE(has(trace::timeline(sessions), "trace.differs"));
}

TEST(TraceFiles, who_waited_for_a_failed_worker_is_not_blamed) {
  if (workers() < 2) GTEST_SKIP() << "nobody waits";
  Folder folder;
  {
    Session s = make_session();
    s.get_global_func("trace.fails_first")(1);
    EXPECT_THROW(s.sync_all(), RemoteError);
    s.shutdown();
  }
  const std::string others =
      workers() == 2 ? "worker 0" : "workers 0, 2" + (workers() > 3 ? "-" + std::to_string(workers() - 1) : "");
  const std::string expected =
      "first failing command 2: trace.fails_first on worker 1, because of which it failed on " + others + "\n";
  std::string text;
  for (int tries = 0; tries < 50 && !has(text, expected); ++tries) {  // other nodes write in their own time
    std::this_thread::sleep_for(100ms);
    const auto sessions = read(folder);
    text = sessions.empty() ? "" : trace::report(sessions[0]);
  }
  EXPECT_TRUE(has(text, expected)) << text;
}

TEST(TraceFiles, a_time_out_and_a_signal_are_told) {
  Folder folder;
  Session s = make_session();
  s.get_global_func("trace.waits_for")(0, folder.path + "/go");
  EXPECT_THROW(s.sync_all(100ms), TimeoutError);
  raise(SIGUSR2);
  for (int i = 0; i < 100 && folder.files() < 2 * workers(); ++i) std::this_thread::sleep_for(50ms);
  const auto sessions = read(folder);
  ASSERT_EQ(sessions.size(), 1u);
  const std::string text = trace::report(sessions[0]);
  EXPECT_TRUE(has(text, "written on time-out, SIGUSR2\n")) << text;
  std::ofstream(folder.path + "/go").flush();
  s.sync_all();
  EXPECT_TRUE(has(text, workers() > 1 ? " waits in barrier #0 of command 2 since " : " runs trace.waits_for in command 2 since "))
      << text;
}

TEST(TraceFiles, a_folder_that_is_none_is_said_and_ends_nothing) {
  Folder folder;
  setenv("TUTTI_TRACE", (folder.path + "/none/at/all").c_str(), 1);
  Session s = make_session();
  s.get_global_func("trace.fails")(0);
  EXPECT_THROW(s.sync_all(), RemoteError);
  s.sync_all();
  EXPECT_EQ(folder.files(), 0);
}

TEST(TraceFiles, the_folder_is_made) {
  Folder folder;
  setenv("TUTTI_TRACE", (folder.path + "/made").c_str(), 1);
  Session s = make_session();
  s.get_global_func("trace.fails")(0);
  EXPECT_THROW(s.sync_all(), RemoteError);
  s.shutdown();
  struct stat info {};
  ASSERT_EQ(stat((folder.path + "/made").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700U);
  EXPECT_FALSE(std::filesystem::is_empty(folder.path + "/made"));
}

TEST(TraceFiles, a_relative_folder_stays_where_the_program_was_started) {
  const auto started_in = std::filesystem::current_path();
  Folder folder;
  setenv("TUTTI_TRACE", std::filesystem::relative(folder.path).c_str(), 1);
  {
    Session before = make_session();
    std::filesystem::create_directory(folder.path + "/elsewhere");
    std::filesystem::current_path(folder.path + "/elsewhere");
    before.sync_all();
  }
  const int of_one = folder.files();
  EXPECT_GE(of_one, 1);
  make_session().sync_all();
  std::filesystem::current_path(started_in);
  EXPECT_GT(folder.files(), of_one);
}

TEST(TraceFiles, a_session_that_fails_for_ever_does_not_fill_the_disk) {
  Folder folder;
  Session s = make_session();
  auto fails = s.get_global_func("trace.fails");
  for (int i = 0; i < 150; ++i) {
    fails(0);
    EXPECT_THROW(s.sync_all(), RemoteError);
  }
  EXPECT_LE(folder.files(), 100 * workers());
  EXPECT_GE(folder.files(), workers());
}

}  // namespace

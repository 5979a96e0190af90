#include <gtest/gtest.h>

#include <random>

#include "run/command.h"
#include "run/lines.h"
#include "tutti/error.h"

namespace tutti::launcher {
namespace {

using Lines = std::vector<std::pair<int, std::string>>;

/// However the text is cut into pieces.
void expect_lines(Launcher by, const std::string& text, const Lines& expected) {
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    Lines lines;
    Untangler untangler(by, [&](int rank, std::string_view line) { lines.emplace_back(rank, line); });
    for (size_t at = 0; at < text.size(); at += piece) untangler.feed(std::string_view(text).substr(at, piece));
    untangler.finish();
    ASSERT_EQ(lines, expected) << "in pieces of " << piece;
  }
}

TEST(Untangler, pieces_of_lines_that_mpirun_mixes_become_whole) {
  expect_lines(Launcher::kMpirun, "[1,1]<stdout>:a1 [1,0]<stdout>:b1 [1,1]<stdout>:a2\n[1,0]<stderr>:b2\n", {{1, "a1 a2"}, {0, "b1 b2"}});
  expect_lines(Launcher::kMpirun, "[1,12]<stdout>:\n[1,12]<stdout>:last", {{12, ""}, {12, "last"}});
}

TEST(Untangler, what_only_looks_like_a_tag_is_text) {
  expect_lines(Launcher::kMpirun, "[1,0]<stdout>:[1,x] [1,2 [] [1,3]<std [1,4]<stdlog>:[[\n", {{0, "[1,x] [1,2 [] [1,3]<std [1,4]<stdlog>:[["}});
  expect_lines(Launcher::kMpirun, "-----\nPrimary job [1\n", {{Untangler::kLauncher, "-----"}, {Untangler::kLauncher, "Primary job [1"}});
  expect_lines(Launcher::kMpirun, "[1,123456789012]<stdout>:x\n", {{Untangler::kLauncher, "[1,123456789012]<stdout>:x"}});
}

TEST(Untangler, srun_marks_lines) {
  expect_lines(Launcher::kSrun, " 0: a\n11: b: 3: c\n 3: \nsrun: error\n", {{0, "a"}, {11, "b: 3: c"}, {3, ""}, {Untangler::kLauncher, "srun: error"}});
}

TEST(LineMarker, short_lines_are_filled_up_and_all_come_back) {
  std::string text;
  std::mt19937 random(7);
  Lines expected;
  for (int i = 0; i < 300; ++i) {  // of any bytes but a newline, its own mark too
    std::string line;
    for (size_t size = i % 10 == 0 ? 5000 : random() % 40; line.size() < size;)
      if (const auto byte = static_cast<char>(random() % 4 == 0 ? random() % 256 : "\x1e\0 x"[random() % 4]); byte != '\n' && byte != '[') line += byte;
    text += line + (i < 299 ? "\n" : "");
    expected.emplace_back(3, line);
  }
  for (size_t piece = 1; piece < 9000; piece = piece * 3 + 1) {
    LineMarker marker;
    std::string marked;
    for (size_t at = 0; at < text.size(); at += piece) marked += marker.feed(std::string_view(text).substr(at, piece));
    marked += marker.finish();
    Lines lines;
    Untangler untangler(Launcher::kMpirun, [&](int rank, std::string_view line) { lines.emplace_back(rank, line); });
    for (size_t begin = 0; begin < marked.size();) {  // as mpirun tags them
      const size_t end = marked.find('\n', begin) + 1;
      EXPECT_GT(end - begin, 32U);
      untangler.feed("[1,3]<stdout>:" + marked.substr(begin, end - begin));
      begin = end;
    }
    untangler.finish();
    ASSERT_EQ(lines, expected) << "in pieces of " << piece;
  }
}

TEST(LineMarker, a_line_may_come_in_parts) {
  LineMarker marker;
  std::string marked = marker.feed("a\nstep 5");
  EXPECT_TRUE(marker.has_begun());
  const std::string begun = marker.begun();
  EXPECT_EQ(begun, "step 5");
  EXPECT_FALSE(marker.has_begun());
  expect_lines(Launcher::kMpirun, "[1,0]<stdout>:" + marked + "[1,0]<stdout>:" + begun, {{0, "a"}, {0, "step 5"}});
  expect_lines(Launcher::kMpirun, "[1,0]<stdout>:" + marked + "[1,0]<stdout>:" + begun + "[1,0]<stdout>:" + marker.feed("7%\n"), {{0, "a"}, {0, "step 57%"}});
}

TEST(LineMarker, the_launchers_words_may_come_before_the_filling) {
  const std::string marked = LineMarker().feed("ab\n");
  expect_lines(Launcher::kMpirun, "[1,0]<stderr>:" + marked.substr(0, 9) + "\n---\n[1,0]<stderr>:" + marked.substr(9) + "[1,0]<stderr>:" + marked, {{0, "ab"}, {Untangler::kLauncher, "---"}, {0, "ab"}});
}

TEST(CodeOfAbort, mpirun_tells_it) {
  EXPECT_EQ(code_of_abort("with errorcode 7."), 7);
  EXPECT_EQ(code_of_abort("with errorcode -1."), 255);
  for (const char* line : {"", "with errorcode ", "with errorcode x.", "with errorcode 7", "It ends with errorcode 7."}) EXPECT_EQ(code_of_abort(line), std::nullopt) << line;
}

TEST(CodeOfStart, slurm_tells_it) {
  EXPECT_EQ(code_of_start("slurmstepd-n1: error: execve(): /tmp/./nosuch: No such file or directory"), 127);
  EXPECT_EQ(code_of_start("slurmstepd: error: execve(): /etc/passwd: Permission denied"), 126);
  for (const char* line : {"", "slurmstepd: error: x", "p: error: execve(): p: No such file or directory"}) EXPECT_EQ(code_of_start(line), std::nullopt) << line;
}

TEST(EndOfTask, srun_tells_how_the_first_task_has_ended) {
  EXPECT_EQ(end_of_task("srun: error: n3: task 2: Exited with exit code 5"), 5);
  EXPECT_EQ(end_of_task("srun: error: n1: tasks 0-2: Exited with exit code 7"), 7);
  EXPECT_EQ(end_of_task("srun: error: n2: task 1: Killed"), 137);
  EXPECT_EQ(end_of_task("srun: error: n2: task 1: Segmentation fault (core dumped)"), 139);
  for (const char* other : {"srun: error: Unable to create step", "srun: launch/slurm: task 1", "task 2: Exited with exit code 5", "srun: error: n1: task 1: Exited with exit code x", ""})
    EXPECT_EQ(end_of_task(other), std::nullopt) << other;
}

Command command(RunOptions options, const Site& site) {
  options.ranks = 4;
  options.program = {"./program", "an argument"};
  return make_command(options, site);
}
const Site kNode{.has_mpirun = true, .srun_mpi = {}};
const Site kSlurm{.has_mpirun = true, .has_srun = true, .in_allocation = true, .srun_mpi = "MPI plugin types are...\n\tpmi2\n\tpmix_v4\n"};

TEST(RunCommand, srun_inside_an_allocation_else_mpirun) {
  EXPECT_EQ(as_shell(command({}, kSlurm)), "SLURM_PMIX_FENCE=ring srun --mpi=pmix -n 4 --kill-on-bad-exit=1 --quit-on-interrupt --label ./program 'an argument'");
  EXPECT_EQ(command({}, kNode).words[0], "mpirun");
  Site outside = kSlurm;
  outside.in_allocation = false;
  EXPECT_EQ(command({}, outside).words[0], "mpirun");
  Site without_pmix = kSlurm;
  without_pmix.srun_mpi = "MPI plugin types are...\n\tpmi2\n";
  EXPECT_EQ(command({}, without_pmix).words[0], "mpirun");
  EXPECT_EQ(command({.launcher = Launcher::kMpirun}, kSlurm).words[0], "mpirun");
}

TEST(RunCommand, a_step_inside_a_step_shares_its_resources) {
  Site in_step = kSlurm;
  in_step.in_step = true;
  EXPECT_NE(as_shell(command({}, in_step)).find("--quit-on-interrupt --overlap --label"), std::string::npos);
  EXPECT_NE(as_shell(command({.crowds = true}, kSlurm)).find("--overcommit --overlap"), std::string::npos);
  EXPECT_NE(as_shell(command({.launcher = Launcher::kMpirun}, in_step)).find("SLURM_OVERLAP=1 mpirun"), std::string::npos) << "its daemons' step, too";
  EXPECT_NE(as_shell(command({.plain = true}, kNode)).find("tutti rank --lines --plain -- ./program"), std::string::npos);
}

TEST(RunCommand, cpus_per_task_go_on_to_srun) {
  Site wide = kSlurm;
  wide.tasks = 4;
  wide.cpus_per_task = "8";
  EXPECT_TRUE(as_shell(command({}, wide)).starts_with("SLURM_PMIX_FENCE=ring SRUN_CPUS_PER_TASK=8 srun"));
  EXPECT_EQ(as_shell(command({.crowds = true}, wide)).find("SRUN_CPUS_PER_TASK"), std::string::npos);
  wide.tasks = 3;  // more ranks have no room for so many
  EXPECT_EQ(as_shell(command({}, wide)).find("SRUN_CPUS_PER_TASK"), std::string::npos);
}

TEST(RunCommand, mpiruns_daemons_get_all_gpus_of_their_nodes) {
  Site by_task = kSlurm;
  by_task.gpus_per_node = 4;
  const std::string text = as_shell(command({.launcher = Launcher::kMpirun}, by_task));
  EXPECT_TRUE(text.starts_with("SLURM_GPUS_PER_NODE=4 ")) << text;
  EXPECT_NE(text.find(" env -u SLURM_GPUS -u SLURM_GPUS_PER_TASK mpirun -n 4 "), std::string::npos) << text;
  EXPECT_EQ(as_shell(command({}, by_task)).find("env"), std::string::npos) << "srun's tasks have their own";
}

TEST(RunCommand, a_colon_is_not_the_begin_of_another_program) {
  RunOptions options{.ranks = 1, .raw = true, .program = {"echo", ":", "::"}};
  EXPECT_NE(as_shell(make_command(options, kNode)).find("tutti rank --colon ::: -- echo ::: ::"), std::string::npos);
  EXPECT_NE(as_shell(make_command(options, kSlurm)).find("tutti rank --colon ::: -- echo ::: ::"), std::string::npos);
}

TEST(RunCommand, hosts_are_all_that_srun_takes) {
  EXPECT_NE(as_shell(command({.hosts = {"a", "b:2"}}, kSlurm)).find("-w a,b -N 2 "), std::string::npos);
  EXPECT_EQ(as_shell(command({.hosts = {"a[1-3]"}}, kSlurm)).find(" -N "), std::string::npos);
}

TEST(RunCommand, options_become_the_launchers) {
  const std::string text = as_shell(command({.hosts = {"a", "b:4"}, .launcher_options = {"--bind-to", "none"}, .bind = "gpu", .raw = true, .valgrind = true}, kNode));
  EXPECT_NE(text.find("mpirun -n 4 --host a,b:4 --mca oob_tcp_keepalive_time 3"), std::string::npos) << text;
  EXPECT_NE(text.find("--bind-to none tutti bind --bind gpu -- valgrind --quiet --error-exitcode=1 ./program 'an argument'"), std::string::npos) << text;
  EXPECT_EQ(text.find("--tag-output"), std::string::npos);
}

TEST(RunCommand, what_can_t_be_started_is_told) {
  const auto why = [](const RunOptions& options, const Site& site) -> std::string {
    try {
      (void)command(options, site);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "nothing";
  };
  EXPECT_NE(why({}, {}).find("no mpirun in PATH"), std::string::npos);
  EXPECT_NE(why({.launcher = Launcher::kSrun}, kNode).find("no srun"), std::string::npos);
  EXPECT_NE(why({.launcher = Launcher::kSrun}, {.has_srun = true, .srun_mpi = {}}).find("needs an allocation"), std::string::npos);
  EXPECT_NE(why({.launcher = Launcher::kSrun}, {.has_srun = true, .in_allocation = true, .srun_mpi = "pmi2"}).find("has no pmix"), std::string::npos);
  Site of_two = kSlurm;
  of_two.components = 2;
  for (const Launcher by : {Launcher::kAuto, Launcher::kMpirun}) EXPECT_NE(why({.launcher = by}, of_two).find("srun --mpi=pmix --het-group=0-1 ./program"), std::string::npos);
  EXPECT_EQ(why({.launcher_options = {"--het-group=1"}}, of_two), "nothing");
}

TEST(RunCommand, is_printed_as_a_shell_reads_it) {
  EXPECT_EQ(as_shell({.words = {"a", "it's", "", "$x"}, .variables = {{"A", "b c"}}}), "A='b c' a 'it'\\''s' '' '$x'");
}

}  // namespace
}  // namespace tutti::launcher

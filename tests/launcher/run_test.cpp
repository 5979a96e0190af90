#include <gtest/gtest.h>

#include <climits>
#include <random>
#include <tuple>

#include "run/command.h"
#include "run/frames.h"
#include "run/lines.h"
#include "tutti/error.h"

namespace tutti::launcher {
namespace {

struct Piece {
  int rank;
  Stream stream;
  std::string text;
  bool operator==(const Piece&) const = default;
};
constexpr int kLauncher = Unframer::kLauncher;

/// However the bytes are cut into pieces. Neighbours of one speaker are one.
void expect_pieces(const std::string& bytes, const std::vector<Piece>& expected) {
  for (size_t piece = 1; piece <= bytes.size(); piece = piece * 3 / 2 + 1) {
    std::vector<Piece> pieces;
    Unframer unframer(Stream::kErr, [&](int rank, Stream stream, std::string_view text) {
      if (!pieces.empty() && pieces.back().rank == rank && pieces.back().stream == stream) pieces.back().text += text;
      else pieces.push_back({rank, stream, std::string(text)});
    });
    for (size_t at = 0; at < bytes.size(); at += piece) unframer.feed(std::string_view(bytes).substr(at, piece));
    unframer.finish();
    ASSERT_EQ(pieces, expected) << "in pieces of " << piece;
  }
}

TEST(Frames, all_have_one_size) {
  EXPECT_EQ(framed(0, Stream::kOut, ""), "");
  for (const size_t size : {1, 400, 498}) EXPECT_EQ(framed(0, Stream::kOut, std::string(size, 'x')).size(), kFrameBytes) << size;
  for (const size_t size : {499, 900, 996})
    EXPECT_EQ(framed(0, Stream::kOut, std::string(size, 'x')).size(), 2 * kFrameBytes) << size;
  EXPECT_EQ(kFramesAtOnce % kFrameBytes, 0U);
  EXPECT_LE(kFramesAtOnce, size_t{PIPE_BUF});
}

TEST(Frames, any_text_of_any_rank_comes_back) {
  std::mt19937 random(7);
  std::string bytes;
  std::vector<Piece> expected;
  for (int i = 0; i < 40; ++i) {
    Piece piece{i % 2 == 0 ? 0 : INT32_MAX - i, i % 3 == 0 ? Stream::kOut : Stream::kErr, ""};
    for (size_t size = i % 10 == 0 ? 5000 : 1 + random() % 700; piece.text.size() < size;)
      piece.text += static_cast<char>(random() % 4 == 0 ? random() % 256 : "\x1e\n b"[random() % 4]);
    bytes += framed(piece.rank, piece.stream, piece.text);
    expected.push_back(piece);
  }
  expect_pieces(bytes, expected);
}

TEST(Frames, text_that_looks_like_a_frame_or_a_tag_is_text) {
  const std::string own = framed(1, Stream::kOut, "of rank 1") + "[1,1]<stdout>:x\n";
  expect_pieces(framed(3, Stream::kOut, own), {{3, Stream::kOut, own}});
}

TEST(Frames, the_launcher_s_words_come_between_them) {
  const std::string a = framed(0, Stream::kOut, "a\n"), b = framed(1, Stream::kErr, "b");
  expect_pieces("-----\n" + a + "\x1e\x1e 1\n" + b + "mpirun:\x1e", {{kLauncher, Stream::kErr, "-----\n"},
                                                                     {0, Stream::kOut, "a\n"},
                                                                     {kLauncher, Stream::kErr, "\x1e\x1e 1\n"},
                                                                     {1, Stream::kErr, "b"},
                                                                     {kLauncher, Stream::kErr, "mpirun:\x1e"}});
}

TEST(Frames, one_that_is_cut_off_counts_as_far_as_it_came) {
  expect_pieces(framed(2, Stream::kErr, "the last words").substr(0, 21), {{2, Stream::kErr, "the last"}});
  expect_pieces(framed(2, Stream::kErr, "x").substr(0, 5), {{kLauncher, Stream::kErr, "\x1e\x30\x30\x30\x30"}});
}

TEST(Lines, pieces_of_speakers_become_whole_lines) {
  std::vector<std::pair<int, std::string>> lines;
  Lines sorted([&](int speaker, std::string_view line) { lines.emplace_back(speaker, line); });
  for (const auto& [speaker, text] : {std::pair(1, "a1 "), {0, "b1 "}, {1, "a2\n\na"}, {0, "b2\n"}, {1, "3"}})
    sorted.add(speaker, text);
  sorted.finish();
  sorted.finish();
  EXPECT_EQ(lines, (std::vector<std::pair<int, std::string>>{{1, "a1 a2"}, {1, ""}, {0, "b1 b2"}, {1, "a3"}}));
}

TEST(TakeLabel, srun_marks_lines) {
  for (const auto& [line, rank, text] : {std::tuple(" 0: a", 0, "a"), {"11: b: 3: c", 11, "b: 3: c"}, {" 3: ", 3, ""}}) {
    std::string_view left = line;
    EXPECT_EQ(take_label(left), rank) << line;
    EXPECT_EQ(left, text) << line;
  }
  for (const std::string_view line : {"", "  ", "srun: error", "3:", "3", ": ", "-3: a", "99999999999: a"}) {
    std::string_view left = line;
    EXPECT_EQ(take_label(left), std::nullopt) << line;
    EXPECT_EQ(left, line);
  }
}

TEST(CodeOfAbort, mpirun_tells_it) {
  EXPECT_EQ(code_of_abort("with errorcode 7."), 7);
  EXPECT_EQ(code_of_abort("with errorcode -1."), 255);
  EXPECT_EQ(code_of_abort("  Errorcode: 7"), 7);  // Open MPI 5
  for (const char* line : {"", "with errorcode ", "with errorcode x.", "with errorcode 7", "It ends with errorcode 7."})
    EXPECT_EQ(code_of_abort(line), std::nullopt) << line;
}

TEST(CodeOfStart, slurm_tells_it) {
  EXPECT_TRUE(tells_of_lost_host("PRTE has lost communication with a remote daemon."));
  EXPECT_FALSE(tells_of_lost_host("  Remote daemon: [prterun-h1-2788@0,2] on node h3"));
  EXPECT_EQ(code_of_start("slurmstepd-n1: error: execve(): /tmp/./nosuch: No such file or directory"), 127);
  EXPECT_EQ(code_of_start("slurmstepd: error: execve(): /etc/passwd: Permission denied"), 126);
  for (const char* line : {"", "slurmstepd: error: x", "p: error: execve(): p: No such file or directory"})
    EXPECT_EQ(code_of_start(line), std::nullopt) << line;
}

TEST(EndOfTask, srun_tells_how_the_first_task_has_ended) {
  EXPECT_EQ(end_of_task("srun: error: n3: task 2: Exited with exit code 5"), 5);
  EXPECT_EQ(end_of_task("srun: error: n1: tasks 0-2: Exited with exit code 7"), 7);
  EXPECT_EQ(end_of_task("srun: error: n2: task 1: Killed"), 137);
  EXPECT_EQ(end_of_task("srun: error: n2: task 1: Segmentation fault (core dumped)"), 139);
  for (const char* other : {"srun: error: Unable to create step", "srun: launch/slurm: task 1", "task 2: Exited with exit code 5",
                            "srun: error: n1: task 1: Exited with exit code x", ""})
    EXPECT_EQ(end_of_task(other), std::nullopt) << other;
}

Command command(RunOptions options, const Site& site) {
  options.ranks = 4;
  options.program = {"./program", "an argument"};
  return make_command(options, site);
}
const Site kNode{.has_mpirun = true, .srun_mpi = {}};
const Site kSlurm{
    .has_mpirun = true, .has_srun = true, .in_allocation = true, .srun_mpi = "MPI plugin types are...\n\tpmi2\n\tpmix_v4\n"};

TEST(RunCommand, options_of_Open_MPI_5) {
  Site five = kNode;
  five.has_prrte = true;
  const std::string told = as_shell(command({}, five));
  EXPECT_NE(told.find("--prtemca oob_tcp_keepalive_time 3 --prtemca"), std::string::npos) << told;
  EXPECT_NE(told.find("PRTE_MCA_rmaps_default_mapping_policy=slot:oversubscribe"), std::string::npos) << told;
  EXPECT_NE(told.find("OMPI_MCA_reachable=weighted"), std::string::npos) << told;
  EXPECT_EQ(as_shell(command({.hosts = {"a"}}, five)).find("reachable"), std::string::npos) << "its routes count between hosts";
}

TEST(RunCommand, srun_inside_an_allocation_else_mpirun) {
  EXPECT_EQ(
      as_shell(command({}, kSlurm)),
      "SLURM_PMIX_FENCE=ring srun --mpi=pmix -n 4 --kill-on-bad-exit=1 --quit-on-interrupt --label ./program 'an argument'");
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
  EXPECT_NE(as_shell(command({.launcher = Launcher::kMpirun}, in_step)).find("SLURM_OVERLAP=1 mpirun"), std::string::npos)
      << "its daemons' step, too";
  EXPECT_NE(as_shell(command({.plain = true}, kNode)).find("tutti rank --frames --plain -- ./program"), std::string::npos);
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
  const std::string text = as_shell(command(
      {.hosts = {"a", "b:4"}, .launcher_options = {"--bind-to", "none"}, .bind = "gpu", .raw = true, .valgrind = true}, kNode));
  EXPECT_NE(text.find("mpirun -n 4 --host a,b:4 --mca oob_tcp_keepalive_time 3"), std::string::npos) << text;
  EXPECT_NE(text.find("--bind-to none tutti bind --bind gpu -- valgrind --quiet --error-exitcode=1 ./program 'an argument'"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("--frames"), std::string::npos);
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
  EXPECT_NE(why({.launcher = Launcher::kSrun}, {.has_srun = true, .srun_mpi = {}}).find("needs an allocation"),
            std::string::npos);
  EXPECT_NE(why({.launcher = Launcher::kSrun}, {.has_srun = true, .in_allocation = true, .srun_mpi = "pmi2"}).find("has no pmix"),
            std::string::npos);
  Site of_two = kSlurm;
  of_two.components = 2;
  for (const Launcher by : {Launcher::kAuto, Launcher::kMpirun})
    EXPECT_NE(why({.launcher = by}, of_two).find("srun --mpi=pmix --het-group=0-1 ./program"), std::string::npos);
  EXPECT_EQ(why({.launcher_options = {"--het-group=1"}}, of_two), "nothing");
}

TEST(RunCommand, is_printed_as_a_shell_reads_it) {
  EXPECT_EQ(as_shell({.words = {"a", "it's", "", "$x"}, .variables = {{"A", "b c"}}}), "A='b c' a 'it'\\''s' '' '$x'");
}

}  // namespace
}  // namespace tutti::launcher

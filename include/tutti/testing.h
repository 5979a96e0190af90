/// Tests of MPI programs with GoogleTest. Every rank runs every test; a test that fails on one rank fails on all, and rank 0
/// tells, once.
///
///     #include <tutti/testing.h>
///     TEST(Ring, PassesOn) {
///       if (tutti::mpi_testing::size() < 2) GTEST_SKIP() << "needs two ranks";
///       ...                      // MPI on MPI_COMM_WORLD, EXPECT_ and ASSERT_ on any rank
///     }
///     int main(int argc, char** argv) { return tutti::mpi_testing::run(argc, argv); }
///
/// `tutti test -n 1,2,4 -- ./ring_test` runs it at several rank counts, with a time limit. Needs MPI and GoogleTest; header only,
/// without libtutti. Tests of a tutti *session* need none of this: GoogleTest runs in the controller program (docs/testing.md).
#pragma once

#include <gtest/gtest.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace tutti::mpi_testing {

namespace detail {

inline constexpr int kSkipped = 77, kSetUpError = 99;
inline constexpr const char *kRank = "TUTTI_TESTING_RANK",
                            *kSize = "TUTTI_TESTING_SIZE";  // for a death test's process, which has no MPI

inline int ask(int (*mpi)(MPI_Comm, int*), const char* variable, int otherwise) {
  int has_mpi = 0;
  MPI_Initialized(&has_mpi);
  if (has_mpi) mpi(MPI_COMM_WORLD, &otherwise);
  else if (const char* told = std::getenv(variable)) otherwise = std::atoi(told);
  return otherwise;
}

}  // namespace detail

inline int rank() { return detail::ask(MPI_Comm_rank, detail::kRank, 0); }
inline int size() { return detail::ask(MPI_Comm_size, detail::kSize, 1); }

namespace detail {

/// What a signal handler may read: where this rank is, for whoever asks by SIGUSR2.
struct Status {
  char text[512] = {};
  void set(const std::string& words) {
    const size_t n = std::min(words.size(), sizeof text - 2);
    text[0] = '\0';
    std::memcpy(text + 1, words.data() + (n > 0), n > 0 ? n - 1 : 0);
    text[n] = '\n', text[n + 1] = '\0';
    if (n > 0) text[0] = words[0];
  }
};
inline Status& status() {
  static Status one;
  return one;
}
inline void tell_status(int) {
  const int before = errno;
  const char* text = status().text;
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text, std::strlen(text));
  errno = before;
}

struct Failure {
  std::string file, message;
  int line = 0;
};

enum class Stop : int { kNo, kSkip, kFailed };  ///< what is not run, and why

/// @name  What a listener records counts for the test that begins, or for all tests while environments are set up.
/// @{
inline void skip(const std::string& why) { GTEST_SKIP() << why; }
inline void fail(const std::string& why) { FAIL() << why; }
/// @}

inline void put(std::string& bytes, const std::string& text) {
  const auto n = static_cast<uint32_t>(text.size());
  bytes.append(reinterpret_cast<const char*>(&n), sizeof n).append(text);
}
inline std::string take(const std::string& bytes, size_t& at) {
  uint32_t n = 0;
  std::memcpy(&n, bytes.data() + at, sizeof n);
  at += sizeof n + n;
  return bytes.substr(at - n, n);
}

inline std::string ranks_in_words(const std::vector<int>& ranks) {
  std::string words = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) words += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  return words;
}

/// Before the next test begins, all ranks know of this one's failures. What one rank does not run, for its set-up says so, none
/// runs.
class OneVerdict : public ::testing::EmptyTestEventListener {
 public:
  explicit OneVerdict(MPI_Comm comm) : comm_(comm) {
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }

  bool nothing_ran() const { return nothing_ran_; }  ///< an environment's SetUp has skipped all

  void OnEnvironmentsSetUpEnd(const ::testing::UnitTest&) override {
    const Stop stop = stop_all(::testing::Test::HasFatalFailure() ? Stop::kFailed
                               : ::testing::Test::IsSkipped()     ? Stop::kSkip
                                                                  : Stop::kNo,
                               "an environment's SetUp");
    if (stop == Stop::kSkip && ::testing::Test::HasFailure())
      fail("an environment's SetUp has failed, another one has skipped");  // a failed skip stops nothing
    nothing_ran_ |= stop == Stop::kSkip;
    skipped_.clear();
  }
  void OnTestStart(const ::testing::TestInfo& test) override {
    const auto& set_up = ::testing::UnitTest::GetInstance()->current_test_suite()->ad_hoc_test_result();
    test_ = "SetUpTestSuite of " + std::string(test.test_suite_name());
    stop_all(set_up.Failed() ? Stop::kFailed : set_up.Skipped() ? Stop::kSkip : Stop::kNo, "SetUpTestSuite");
    test_ = std::string(test.test_suite_name()) + "." + test.name();
    status().set("rank " + std::to_string(rank_) + " is in " + test_);
  }
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (result.skipped() && result.message() && *result.message()) skipped_ = result.message();
    while (skipped_.ends_with('\n')) skipped_.pop_back();  // GoogleTest 1.16 adds one
    if (!result.failed() || is_telling_) return;
    mine_.push_back({result.file_name() ? result.file_name() : "", result.message(), result.line_number()});
    status().set("rank " + std::to_string(rank_) + " is in " + test_ + in_words(mine_.back()));
  }
  void OnTestEnd(const ::testing::TestInfo&) override {
    exchange();
    if (!skipped_.empty())
      ::testing::Test::RecordProperty("skipped_because", std::exchange(skipped_, {}));  // GoogleTest's JSON has no word of it
  }
  void OnTestSuiteEnd(const ::testing::TestSuite&) override { exchange(); }
  void OnEnvironmentsTearDownEnd(const ::testing::UnitTest&) override { exchange(); }

 private:
  static std::string in_words(const Failure& failure) {
    return ", where it has failed: " + failure.file + ":" + std::to_string(failure.line) + ": " + failure.message;
  }

  /// What the ranks' set-ups have come to, as the worst has it, is what this one's comes to.
  Stop stop_all(Stop mine, const char* what) {
    exchange();
    int stop = static_cast<int>(mine);
    MPI_Allreduce(MPI_IN_PLACE, &stop, 1, MPI_INT, MPI_MAX, comm_);
    const auto all = static_cast<Stop>(stop);
    is_telling_ = true;
    if (all == Stop::kSkip) skip(mine == all ? skipped_ : std::string(what) + " has skipped on another rank");
    if (all == Stop::kFailed && mine != all) fail(std::string(what) + " has failed on another rank");
    is_telling_ = false;
    return all;
  }

  void exchange() {
    std::string words = "rank " + std::to_string(rank_) + " waits for the others after " + test_;
    std::string bytes;
    for (const Failure& failure : mine_) {
      put(bytes, failure.file), put(bytes, std::to_string(failure.line)), put(bytes, failure.message);
      words += in_words(failure);
    }
    mine_.clear();
    status().set(words);
    const auto count = static_cast<size_t>(size_);
    int my_size = static_cast<int>(bytes.size());
    std::vector<int> sizes(count), places(count);
    MPI_Allgather(&my_size, 1, MPI_INT, sizes.data(), 1, MPI_INT, comm_);
    int total = 0;
    for (size_t r = 0; r < count; ++r) places[r] = total, total += sizes[r];
    if (total == 0) return;
    std::string all(static_cast<size_t>(total), '\0');
    MPI_Allgatherv(bytes.data(), my_size, MPI_CHAR, all.data(), sizes.data(), places.data(), MPI_CHAR, comm_);
    is_telling_ = true;
    tell(all, sizes);
    is_telling_ = false;
  }
  /// Every rank fails, so that options such as --gtest_fail_fast mean the same to all; only rank 0 is heard.
  void tell(const std::string& all, const std::vector<int>& sizes) const {
    std::map<std::tuple<std::string, int, std::string>, std::vector<int>> ranks;  // equal failures are told once
    size_t at = 0, end = 0;
    for (int r = 0; r < size_; ++r) {
      for (end += static_cast<size_t>(sizes[static_cast<size_t>(r)]); at < end;) {
        std::string file = take(all, at);
        const int line = std::atoi(take(all, at).c_str());
        if (r != rank_) ranks[{std::move(file), line, take(all, at)}].push_back(r);  // one's own are told already
        else take(all, at);
      }
    }
    for (const auto& [failure, where] : ranks) {
      const auto& [file, line, message] = failure;
      ADD_FAILURE_AT(file.empty() ? "(no file)" : file.c_str(), line) << "on " << ranks_in_words(where) << ": " << message;
    }
  }

  MPI_Comm comm_;
  int rank_ = 0, size_ = 1;
  std::string test_ = "the start";
  std::vector<Failure> mine_;
  std::string skipped_;
  bool is_telling_ = false, nothing_ran_ = false;
};

}  // namespace detail

/// Starts MPI if nobody has, runs all tests, ends MPI if it has started it. Collective over MPI_COMM_WORLD. GoogleTest's options
/// work; files that
/// --gtest_output names are written by rank 0. SIGUSR2 makes each rank say which test it is in. Constructors and
/// destructors of fixtures must not wait for other ranks: where SetUpTestSuite has failed on one, it makes none. A death test's
/// process has no MPI, but rank() and size().
/// @return  what main shall return, the same on all ranks: 0; 1 if a test failed on any; 77 if all were skipped; 99 if none was
/// run, or MPI can't be started
inline int run(int argc, char** argv) {
  // a death test of the style "threadsafe" starts this program once more
  const bool is_death = std::any_of(
      argv, argv + argc, [](const char* word) { return std::strncmp(word, "--gtest_internal_run_death_test=", 32) == 0; });
  if (is_death) {
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
  }
  int was_started = 0, provided = 0;
  MPI_Initialized(&was_started);
  if (!was_started && MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS) return detail::kSetUpError;
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  const bool wants_help = std::any_of(
      argv, argv + argc, [](const char* word) { return std::strcmp(word, "--help") == 0 || std::strcmp(word, "-h") == 0; });
  ::testing::InitGoogleTest(&argc, argv);
  struct sigaction before {};
  if (sigaction(SIGUSR2, nullptr, &before) == 0 && before.sa_handler == SIG_DFL) std::signal(SIGUSR2, detail::tell_status);

  int seed = ::testing::GTEST_FLAG(random_seed);
  if (seed == 0) seed = static_cast<int>(getpid() % 99999) + 1;  // with --gtest_shuffle: one order for all
  MPI_Bcast(&seed, 1, MPI_INT, 0, comm);
  ::testing::GTEST_FLAG(random_seed) = seed;
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  setenv(detail::kRank, std::to_string(rank()).c_str(), 1);
  setenv(detail::kSize, std::to_string(size()).c_str(), 1);
  if (rank() != 0) {
    delete listeners.Release(listeners.default_result_printer());
    delete listeners.Release(listeners.default_xml_generator());
  }
  auto* verdict = new detail::OneVerdict(comm);
  listeners.Append(verdict);  // the events of a test's end come to the last one first

  const bool is_list = ::testing::GTEST_FLAG(list_tests);
  int code = is_list && rank() != 0 ? 0 : RUN_ALL_TESTS();
  const auto& tests = *::testing::UnitTest::GetInstance();
  if (!is_list && !wants_help && tests.test_to_run_count() == 0) {  // a filter with a slip in it must not look like success
    if (rank() == 0) std::fprintf(stderr, "no test was run: --gtest_filter matches none, or an option is misspelt\n");
    code = detail::kSetUpError;
  }
  if (code == 0 &&
      (verdict->nothing_ran() || (tests.skipped_test_count() > 0 && tests.skipped_test_count() == tests.test_to_run_count())))
    code = detail::kSkipped;
  constexpr int kCodes[] = {detail::kSkipped, 0, detail::kSetUpError,
                            1};  // the worst of all ranks' counts; others than these are failures
  int worst = static_cast<int>(std::find(kCodes, kCodes + 3, code) - kCodes);
  MPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_INT, MPI_MAX, comm);
  code = kCodes[worst];
  detail::status().set("rank " + std::to_string(rank()) + " has run all tests and ends");
  MPI_Comm_free(&comm);
  if (!was_started) MPI_Finalize();
  return code;
}

}  // namespace tutti::mpi_testing

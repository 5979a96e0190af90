// A test program of MPI's, as users write them. BREAK=WHAT: what goes wrong on the last rank.
#include "tutti/testing.h"

#include <chrono>
#include <cstdlib>
#include <thread>

namespace {

using tutti::mpi_testing::rank, tutti::mpi_testing::size;

bool breaks(const char* what) {
  const char* wanted = std::getenv("BREAK");
  return wanted && std::string(wanted) == what && rank() == size() - 1;
}

class Surroundings : public testing::Environment {
  void SetUp() override {
    if (breaks("environment-fails")) FAIL() << "on purpose";
    if (breaks("environment-skips")) GTEST_SKIP() << "no such machine";
  }
};

class Prepared : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (breaks("suite-fails")) FAIL() << "on purpose";
    if (breaks("suite-skips")) GTEST_SKIP() << "no such suite";
  }
};
TEST_F(Prepared, First) { MPI_Barrier(MPI_COMM_WORLD); }
TEST_F(Prepared, Second) { MPI_Barrier(MPI_COMM_WORLD); }

TEST(SpmdDeathTest, KnowsItsRankInBothStyles) {
  for (const char* style : {"fast", "threadsafe"}) {
    GTEST_FLAG_SET(death_test_style, style);
    EXPECT_EXIT(std::_Exit(10 * size() + rank()), testing::ExitedWithCode(10 * size() + rank()), "") << style;
  }
}

TEST(Spmd, Sum) {
  int sum = 0;
  const int mine = rank();
  MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  EXPECT_EQ(sum, size() * (size() - 1) / 2);
  if (breaks("expect")) {
    EXPECT_EQ(sum, -1) << "on purpose";
  }
  if (breaks("throw")) throw std::runtime_error("thrown on purpose");
  if (breaks("kill")) std::raise(SIGKILL);
  if (breaks("segv")) std::raise(SIGSEGV);
  if (breaks("abort")) MPI_Abort(MPI_COMM_WORLD, 7);
  if (breaks("exit")) std::exit(3);
  if (breaks("hang in a thread"))
    std::thread([] { MPI_Recv(nullptr, 0, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE); }).join();
  if (breaks("hang")) std::this_thread::sleep_for(std::chrono::hours(1));
}

TEST(Spmd, AssertBeforeACollective) {
  if (breaks("assert")) {
    ASSERT_TRUE(false) << "on purpose";  // the others wait in the barrier: the time limit ends that
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(Spmd, NeedsTwoRanks) {
  if (size() < 2) GTEST_SKIP() << "needs two ranks";
  MPI_Barrier(MPI_COMM_WORLD);
}

}  // namespace

int main(int argc, char** argv) {
  if (const char* what = std::getenv("BREAK"); what && std::string(what) == "set-up") return 99;
  testing::AddGlobalTestEnvironment(new Surroundings);
  return tutti::mpi_testing::run(argc, argv);
}

#include "tutti/error.h"

#include <gtest/gtest.h>

namespace {

using namespace tutti;

WorkerFailure failure(int worker, const std::string& message, uint64_t seq = 7) {
  return {.worker = worker,
          .seq = seq,
          .host = "h",
          .pid = 1,
          .kind = "K",
          .message = message,
          .function = "f",
          .issued_at = "a.cpp:3",
          .traceback = {}};
}

TEST(RemoteError, folds_equal_failures_into_ranges) {
  const RemoteError error({failure(2, "m"), failure(0, "m"), failure(1, "m"), failure(5, "m"), failure(4, "other")});
  const std::string text = error.what();
  EXPECT_NE(text.find("[workers 0-2, 5 h pid 1, ...] f: K: m"), std::string::npos) << text;
  EXPECT_NE(text.find("[worker 4 h pid 1] f: K: other"), std::string::npos) << text;
  EXPECT_NE(text.find("issued at a.cpp:3 (command 7)"), std::string::npos) << text;
  EXPECT_EQ(error.workers(), (std::vector{0, 1, 2, 4, 5}));
}

TEST(RemoteError, names_have_no_control_characters) {
  WorkerFailure named = failure(2, "oops");
  named.function = "f\x1b[31m\n";
  const std::string text = RemoteError({named}).what();
  EXPECT_TRUE(text.starts_with(R"([worker 2 h pid 1] f\x1b[31m\x0a: K: oops)")) << text;
}

TEST(Error, shows_what_follows_a_nul) {
  EXPECT_STREQ(UsageError(std::string("a\0b\0", 4)).what(), "a\\0b\\0");
  EXPECT_STREQ(UsageError("plain").what(), "plain");
  EXPECT_NE(std::string(RemoteError({failure(0, std::string("x\0y", 3))}).what()).find("x\\0y\n  issued at"), std::string::npos);
}

TEST(RemoteError, keeps_different_commands_apart) {
  const RemoteError error({failure(0, "m", 1), failure(1, "m", 2)});
  EXPECT_EQ(std::string(error.what()).find("workers"), std::string::npos) << error.what();
}

}  // namespace

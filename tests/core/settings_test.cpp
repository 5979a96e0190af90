#include "core/settings.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "core/env.h"

namespace {

using namespace tutti;
using namespace tutti::detail;

class Environment : public ::testing::Test {
 protected:
  Environment() { clear(); }
  ~Environment() override { clear(); }
  static void clear() {
    for (const char* name : Settings::names()) unsetenv(name);
    read_settings();
  }
};

TEST_F(Environment, nothing_is_set) {
  EXPECT_EQ(settings(), Settings());
  EXPECT_EQ(settings().timeout_s, 600);
  EXPECT_TRUE(settings().arena);
}

TEST_F(Environment, is_read_when_told) {
  setenv("TUTTI_TIMEOUT", "7", 1);
  setenv("TUTTI_ARENA", "0", 1);
  setenv("TUTTI_ALONE", "0", 1);
  setenv("TUTTI_TRACE", "a folder", 1);
  const Settings& before = settings();
  EXPECT_EQ(settings().timeout_s, 600);
  read_settings();
  EXPECT_EQ(settings().timeout_s, 7);
  EXPECT_FALSE(settings().arena);
  EXPECT_FALSE(settings().alone);
  EXPECT_EQ(settings().trace, "a folder");
  EXPECT_EQ(before.timeout_s, 600);  // whoever still looks at the old ones
  clear();
  EXPECT_EQ(&settings(), &before);  // a program that changes them to and fro keeps two of them
}

TEST_F(Environment, empty_is_unset) {
  for (const char* name : Settings::names()) setenv(name, "", 1);
  read_settings();
  EXPECT_EQ(settings(), Settings());
}

TEST_F(Environment, what_is_wrong_is_named_and_changes_nothing) {
  for (const char* name : {"TUTTI_TIMEOUT", "TUTTI_HEARTBEAT", "TUTTI_RANKS_PER_NODE", "TUTTI_ALONE", "TUTTI_SHARED_MEMORY",
                           "TUTTI_ARENA", "TUTTI_CHECK_HOST_ARRAYS", "TUTTI_MPI_MAX_COUNT"})
    for (const char* text : {"nonsense", "-1", "1.5", "99999999999999999999"}) {
      setenv(name, text, 1);
      try {
        read_settings();
        ADD_FAILURE() << name << "=" << text;
      } catch (const SetUpError& error) {
        EXPECT_NE(std::string(error.what()).find(std::string(name) + "='" + text + "': expected an integer"), std::string::npos)
            << error.what();
      }
      unsetenv(name);
      EXPECT_EQ(settings(), Settings());
    }
}

}  // namespace

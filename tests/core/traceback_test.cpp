#include "core/traceback.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

namespace traceback_test {

[[gnu::noinline]] int thrower(int value) {
  if (value == 42) throw value;
  if (value > 0) throw std::runtime_error("thrown");
  return value + 1;
}
[[gnu::noinline]] int caller(int value) { return thrower(value) + 1; }
inline int inlined(int value) { return caller(value) * 2; }

}  // namespace traceback_test

namespace {

using namespace tutti;
using namespace tutti::detail;

volatile int sink;

std::string traceback_of(const std::function<void()>& f) {
  try {
    traced([&] { f(); });
  } catch (...) {
  }
  return take_traceback();
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Traceback, names_functions_and_lines_from_the_throw_outward) {
  for (int value : {1, 42}) {
    const std::string text = traceback_of([&] { sink = traceback_test::inlined(value); });
    EXPECT_EQ(text.find("    traceback_test::thrower(int)"), 0u) << text;
    const size_t outer = text.find("\n    traceback_test::caller(int)");
    EXPECT_NE(outer, text.npos) << text;
    EXPECT_TRUE(has(text, value == 42 ? "traceback_test.cpp:15\n" : "traceback_test.cpp:16\n")) << text;
    EXPECT_TRUE(has(text, "traceback_test.cpp:20")) << text;  // though it has no frame
    EXPECT_EQ(text.find("gtest"), text.npos) << text;
  }
}

TEST(Traceback, leaves_what_threw_inside_the_standard_library_out) {
  const std::string text = traceback_of([] { sink = std::vector<int>().at(3); });
  EXPECT_FALSE(has(text, "__cxa_throw")) << text;
  EXPECT_TRUE(has(text, "traceback_test.cpp")) << text;
}

TEST(Traceback, is_of_the_last_exception_that_left) {
  const std::string text = traceback_of([] {
    try {
      traceback_test::caller(1);
    } catch (const std::exception&) {
    }
    traceback_test::thrower(1);
  });
  EXPECT_TRUE(has(text, "thrower")) << text;
  EXPECT_FALSE(has(text, "caller")) << text;
  EXPECT_EQ(take_traceback(), "");
  EXPECT_EQ(traceback_of([] {}), "");
  try {
    traceback_test::caller(1);  // outside of traced()
  } catch (const std::exception&) {
  }
  EXPECT_EQ(take_traceback(), "");
}

TEST(Traceback, nests_and_threads_have_their_own) {
  const std::string text = traceback_of([] {
    EXPECT_TRUE(has(traceback_of([] { sink = traceback_test::caller(1); }), "caller"));
    std::thread([] { EXPECT_EQ(take_traceback(), ""); }).join();
    traceback_test::thrower(1);
  });
  EXPECT_FALSE(has(text, "caller")) << text;
  EXPECT_TRUE(has(text, "thrower")) << text;
}

[[gnu::noinline]] void deep(int n) {
  if (n == 0) traceback_test::thrower(1);
  else deep(n - 1);
  asm volatile("");  // no tail call
}

TEST(Traceback, of_deep_recursion_is_cut) {
  const std::string text = traceback_of([] { deep(1000); });
  EXPECT_TRUE(has(text, "thrower")) << text;
  EXPECT_TRUE(has(text, "more")) << text;
  EXPECT_LT(text.size(), 10000u);
}

}  // namespace

// One suite for every kind of session: TUTTI_TEST_KIND=thread|process|mpi, TUTTI_TEST_WORKERS=n.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tutti/tutti.h"

namespace tutti {
inline void PrintTo(const Value& value, std::ostream* out) { *out << to_string(value); }  // for GoogleTest's messages
}  // namespace tutti

namespace tutti_test {

inline std::string kind() {
  const char* text = std::getenv("TUTTI_TEST_KIND");
  return text ? text : "thread";
}
inline int workers() {
  const char* text = std::getenv("TUTTI_TEST_WORKERS");
  return text ? std::atoi(text) : 4;
}
/// All workers of this run unless told otherwise.
inline tutti::Session make_session(tutti::SessionOptions options) {
  if (options.num_workers == 0) options.num_workers = workers();
  if (kind() == "thread") return tutti::ThreadedSession(options);
  if (kind() == "process") return tutti::ProcessSession(options);
  return tutti::Session::create(options);
}
inline tutti::Session make_session(int groups = 1, int n = workers()) {
  return make_session(tutti::SessionOptions{.num_workers = n, .num_groups = groups});
}
/// With two workers at least: processes or threads when this run has one.
inline tutti::Session make_session_of_several() {
  if (workers() > 1) return make_session();
  return kind() == "process" ? tutti::Session(tutti::ProcessSession(2)) : tutti::Session(tutti::ThreadedSession(2));
}
/// 1 and, where the workers divide, 2; of three workers 3.
inline std::vector<int> group_counts() {
  return workers() == 3 ? std::vector{1, 3} : workers() % 2 == 0 ? std::vector{1, 2} : std::vector{1};
}

inline std::vector<float> iota(int64_t n, float first = 0) {
  std::vector<float> v(static_cast<size_t>(n));
  for (size_t i = 0; i < v.size(); ++i) v[i] = first + static_cast<float>(i);
  return v;
}
inline tutti::Tensor floats(const std::vector<float>& v, tutti::Shape shape = {}) {
  return tutti::Tensor::from<float>(std::span<const float>(v), std::move(shape));
}
inline std::vector<float> to_vector(const tutti::Value& value) {
  const auto tensor = value.as<tutti::Tensor>();
  const auto span = tensor.values<float>();
  return {span.begin(), span.end()};
}

/// The message of the error that f throws, or "" when it throws nothing (or something else).
template <class E, class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  return {};
}

}  // namespace tutti_test

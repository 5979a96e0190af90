// What `tutti trace` makes of files.
#include "trace/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tutti/error.h"

namespace {

using namespace tutti;
using Json = nlohmann::json;

Json command(int number, int seq, const char* state, const char* function) {
  Json json{{"number", number},       {"command", seq},          {"state", state},
            {"begin", 1000 * number}, {"action", "call_packed"}, {"function", function}};
  if (std::string(state) != "running") json["end"] = 1000 * number + 500;
  return json;
}

Json collective(int number, int seq, const char* state, const char* what, int count, uint64_t communicator = 0) {
  return {{"number", number},   {"command", seq},
          {"state", state},     {"begin", 1000 * number},
          {"collective", what}, {"communicator", communicator},
          {"index", 0},         {"count", count},
          {"dtype", "float32"}, {"op", "sum"},
          {"root", 0}};
}

Json file(int worker, int finished, Json records) {
  return {{"schema", "tutti.trace/1"},
          {"job", "00ff"},
          {"session", 1},
          {"dump", 0},
          {"reason", "error"},
          {"written", 2000000000},
          {"worker", worker},
          {"workers", 3},
          {"groups", 1},
          {"host", "node7"},
          {"pid", 100 + worker},
          {"finished", finished},
          {"records", std::move(records)}};
}

trace::Session merged(const std::vector<Json>& files) {
  trace::Session session;
  for (const Json& json : files) {
    trace::Session one = trace::read_text(json.dump(), "a file");
    one.by_worker.merge(session.by_worker);
    session = std::move(one);
  }
  return session;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Trace, the_report_tells_what_failed_first) {
  const std::string text = trace::report(merged({file(0, 9, {command(1, 4, "failed", "my.f"), command(2, 5, "skipped", "my.g")}),
                                                 file(1, 9, {command(1, 4, "done", "my.f"), command(2, 5, "failed", "my.g")})}));
  EXPECT_TRUE(has(text, "session 1 of job 00ff: 3 workers, written on error")) << text;
  EXPECT_TRUE(has(text, "no trace of worker 2\n")) << text;
  EXPECT_TRUE(has(text, "first failing command 4: my.f on worker 0\n")) << text;
  EXPECT_TRUE(has(text, "then command 5: my.g on worker 1\n")) << text;
}

TEST(Trace, the_report_blames_no_worker_for_the_failure_of_another) {
  const std::string text =
      trace::report(merged({file(0, 9, {command(1, 4, "consequence", "my.f"), command(2, 5, "consequence", "my.g")}),
                            file(1, 9, {command(1, 4, "consequence", "my.f")}),
                            file(2, 9, {command(1, 4, "failed", "my.f"), command(2, 5, "skipped", "my.g")})}));
  EXPECT_TRUE(has(text, "first failing command 4: my.f on worker 2, because of which it failed on workers 0-1\n")) << text;
  EXPECT_FALSE(has(text, "my.g")) << text;
}

TEST(Trace, the_report_tells_who_is_behind_and_what_does_not_fit) {
  const std::string text =
      trace::report(merged({file(0, 3, {command(1, 4, "running", "my.f"), collective(2, 4, "running", "allreduce", 10)}),
                            file(1, 3, {command(1, 4, "running", "my.f"), collective(2, 4, "running", "allreduce", 20)}),
                            file(2, 7, {command(1, 4, "done", "my.f")})}));
  EXPECT_TRUE(has(text, "no command failed")) << text;
  EXPECT_TRUE(has(
      text,
      "worker 0 (node7 pid 100) waits in allreduce #0 of command 4 since 2.000 s; it has finished command 3, 4 behind the first"))
      << text;
  EXPECT_TRUE(has(text,
                  "collective #0 of command 4 does not fit together: worker 0: allreduce sum float32 x 10; worker 1: allreduce "
                  "sum float32 x 20; "
                  "worker 2 not there\n"))
      << text;
  EXPECT_FALSE(has(text, "worker 2 (node7")) << text;  // it is not behind
}

TEST(Trace, members_that_lack_are_named_and_parts_may_differ) {
  auto s = [](const char* what, int count, uint64_t communicator) {
    return merged({file(0, 3, {command(1, 4, "running", "f"), collective(2, 4, "running", what, count, communicator)}),
                   file(1, 3, {command(1, 4, "running", "f"), collective(2, 4, "running", what, count + 1, communicator)}),
                   file(2, 4, {command(1, 4, "done", "f")})});
  };
  EXPECT_TRUE(has(trace::report(s("scatter", 5, 0)),
                  "collective #0 of command 4 lacks members: workers 0-1: scatter float32 root 0; worker 2 not there"))
      << trace::report(s("scatter", 5, 0));
  EXPECT_FALSE(
      has(trace::report(s("scatter", 5, uint64_t{3} << 56)), "collective #0"));  // a part: its members are its own business
}

TEST(Trace, names_have_no_control_characters) {
  Json json = file(0, 3, {command(1, 4, "failed", "my.\x1b[31m\nf\xc3\xa9\xc2\x9b")});
  json["host"] = "no\rde";
  const std::string text = trace::report(merged({json}));
  EXPECT_TRUE(has(text, R"(command 4: my.\x1b[31m\x0af)"
                        "\xc3\xa9"
                        R"(\x9b on worker 0)"))
      << text;
  EXPECT_EQ(std::count_if(text.begin(), text.end(), [](unsigned char c) { return c < ' ' && c != '\n'; }), 0) << text;
}

TEST(Trace, the_timeline_is_a_chrome_trace) {
  Json agreed = collective(2, 4, "done", "allreduce", 10);
  agreed["agreed"] = 2300, agreed["end"] = 2400;
  const Json json = Json::parse(trace::timeline(
      {merged({file(0, 4, {command(1, 4, "done", "my.f"), agreed}), file(1, 4, {command(1, 4, "running", "my.f")})})}));
  std::map<std::string, int> names;
  for (const Json& event : json.at("traceEvents")) {
    ++names[event.at("name").get<std::string>()];
    if (event.at("ph") == "X") {
      EXPECT_GE(event.at("dur").get<double>(), 0) << event;
      EXPECT_GE(event.at("ts").get<double>(), 0) << event;
    }
  }
  EXPECT_EQ(names["my.f"], 2);
  EXPECT_EQ(names["wait: allreduce (float32 x 10)"], 1);
  EXPECT_EQ(names["allreduce (float32 x 10)"], 1);
  EXPECT_EQ(names["process_name"], 2);
  EXPECT_EQ(json.dump().find("\"dur\":0.3,") != std::string::npos, true) << json;  // microseconds
}

TEST(Trace, what_is_no_trace_is_an_error_that_names_the_file) {
  auto message = [](const std::string& text) {
    try {
      trace::read_text(text, "that file");
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message(file(0, 1, Json::array()).dump()), "");
  EXPECT_TRUE(has(message(""), "that file is no trace of tutti: "));
  EXPECT_TRUE(has(message("[]"), "that file is no trace of tutti: "));
  auto with = [&](const char* key, Json value) {
    Json json = file(0, 1, {command(1, 1, "done", "f")});
    json[key] = std::move(value);
    return message(json.dump());
  };
  EXPECT_TRUE(has(with("schema", "tutti.trace/2"), "expected 'tutti.trace/1'"));
  EXPECT_TRUE(has(with("worker", 3), "'worker' is 3, expected an integer from 0 to 2"));
  EXPECT_TRUE(has(with("worker", -1), "expected at least 0") || has(with("worker", -1), "expected an integer"));
  EXPECT_TRUE(has(with("workers", 1e300), "expected an integer"));
  EXPECT_TRUE(has(with("workers", uint64_t{1} << 63), "expected an integer"));
  EXPECT_TRUE(has(with("groups", 2), "3 workers in 2 groups"));
  EXPECT_NE(with("records", 7), "");
  EXPECT_NE(with("records", Json{{{"number", -1}}}), "");
}

TEST(Trace, a_folder_without_traces_is_an_error) {
  std::vector<std::string> problems;
  EXPECT_THROW(trace::read_folder("/nonexistent", problems), SystemError);
  EXPECT_THROW(trace::read_folder("/proc/self/task", problems), UsageError);
}

}  // namespace

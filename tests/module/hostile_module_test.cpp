// What modules may do wrong: an error with words, and the session goes on. docs/errors.md lists the outcomes.
#include <gtest/gtest.h>

#include "support/session_kinds.h"

namespace {

using namespace tutti;
using namespace tutti_test;

std::string library(const std::string& name) { return std::string(TUTTI_TEST_MODULES) + "/" + name + ".so"; }

Session* live_session = nullptr;
const bool registered = [] {
  register_global_func("hostile.use_session", [](Args) {
    if (live_session) live_session->sync_all();  // worker 0 lives where the session is
  });
  return true;
}();

TEST(Hostile, results_that_are_none) {
  Session s = make_session();
  DModule m = s.load_vm_module(library("hostile"));
  const std::pair<const char*, const char*> table[] = {
      {"garbage_type_index", "type index 37, which is none"},
      {"negative_type_index", "type index -5"},
      {"null_object", "where no object is"},
      {"wild_object", "where no object is"},
      {"misaligned_object", "where no object is"},
      {"unmapped_object", "where no object is"},
      {"another_type", "with an object that says 69"},
      {"no_references", "0 references"},
      {"deleter_no_code", "deleter is no code"},
      {"dangling_string", "can't be read"},
      {"endless_string", "can't be read"},
      {"small_string_of_99", "small string of 99"},
      {"dangling_tensor", "can't be read"},
      {"tensor_of_minus_one_dimensions", "-1 dimensions"},
      {"tensor_of_negative_extent", "shape can't be"},
      {"tensor_of_too_many", "shape can't be"},
      {"tensor_without_dtype", "dtype code 0, 0 bits"},
      {"array_of_rubbish", "an array with type index 55"},
      {"array_inside_itself", "nested too deep"},
      {"endless_array", "can't be read"},
      {"function_no_code", "a function that is no code"},
      {"function_of_the_kernel", "a function that is no code"},  // in the vsyscall page
      {"local_char_pointer", "for arguments only"},
      {"error_not_set", "returned -1 without raising an error"},
      {"other_code", "returned 12345 without"},
      {"null_error_texts", "RuntimeError: "},
      {"error_no_object", "failed and raised"},
      {"long_error", "(10000000 bytes in all)"},
  };
  for (const auto& [name, text] : table) {
    const std::string message = message_of<RemoteError>([&, name = name] {  // captured so, for clang 14
      m[name]();
      s.sync_all();
    });
    EXPECT_NE(message.find(text), std::string::npos) << name << ": " << message.substr(0, 300);
    EXPECT_LT(message.size(), 200000u) << name;
  }
  m["error_and_success"]();  // returned 0: fine
  s.sync_all();
  EXPECT_EQ(s.get_global_func("runtime.disco.world_size")().debug_get_from_remote(workers() - 1), Value(workers()));
}

TEST(Hostile, releases_what_is_not_its_own) {
  Session s = make_session();
  DModule m = s.load_vm_module(library("hostile"));
  DRef tensor = s.broadcast(floats({1, 2}));
  const std::string message = message_of<RemoteError>([&] {
    s.call(m["releases_its_argument"], {tensor});
    s.sync_all();
  });
  EXPECT_NE(message.find("released argument 1, which it had only borrowed"), std::string::npos) << message;
  EXPECT_EQ(to_vector(tensor.debug_get_from_remote(workers() - 1)), (std::vector<float>{1, 2}));
}

TEST(Hostile, throws_through_c) {
  Session s = make_session();
  DModule m = s.load_vm_module(library("throws"));
  const auto error_of = [&](const char* name) {
    return message_of<RemoteError>([&] {
      m[name]();
      s.sync_all();
    });
  };
  EXPECT_NE(error_of("throws").find("Own: thrown through C"), std::string::npos);
  EXPECT_NE(error_of("throws_an_int").find("not a std::exception"), std::string::npos);
  s.sync_all();
}

TEST(Hostile, recursion) {
  Session s = make_session();
  DModule m = s.load_vm_module(library("hostile"));
  live_session = &s;
  const std::string session = message_of<RemoteError>([&] {
    s.call(m["call"], {"hostile.use_session"});
    s.sync_all();
  });
  live_session = nullptr;
  EXPECT_NE(session.find("a worker function can't use a session"), std::string::npos) << session;
  // without end: hostile.call calls itself
  register_global_func("hostile.nothing", [] {}, {.override_existing = true});
  const std::string endless = message_of<RemoteError>([&] {
    s.call(s.get_global_func("hostile.register_call"), {m["call"]});
    s.call(m["call"], {"hostile.call"});
    s.sync_all();
  });
  EXPECT_NE(endless.find("RecursionError"), std::string::npos) << endless.substr(0, 500);
}

const bool recursion_registered = register_global_func("hostile.register_call", [](const Function& call) {
  register_global_func("hostile.call", [call](Args args) { return call(args); }, {.override_existing = true});
});

TEST(Hostile, exit_on_a_worker_ends_that_process) {
  if (kind() != "process" || workers() < 2) return;  // elsewhere exit() ends the job, or the program itself: docs/errors.md
  Session s = make_session();
  DModule m = s.load_vm_module(library("hostile"));
  register_global_func("hostile.on", [](int, const Function&) {}, {.override_existing = true});
  const std::string message = message_of<TransportError>([&] {
    s.call(s.get_global_func("hostile.on_last"), {m["exit"]});
    s.sync_all();
  });
  EXPECT_NE(message.find("worker " + std::to_string(workers() - 1)), std::string::npos) << message;
  Session next = make_session();
  next.sync_all();
}

const bool exit_registered = register_global_func("hostile.on_last", [](const Function& f) {
  if (worker::id() == worker::count() - 1) f({});
});

}  // namespace

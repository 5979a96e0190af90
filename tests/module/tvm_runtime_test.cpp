// A module that links libtvm_ffi (here: a small one of our own): from then on that one keeps errors and global functions.
#include <gtest/gtest.h>

#include "support/session_kinds.h"

namespace {

using namespace tutti;
using namespace tutti_test;

std::string library(const std::string& name) { return std::string(TUTTI_TEST_MODULES) + "/" + name + ".so"; }

const bool registered = register_global_func("tvm_test.add", [](int64_t a, int64_t b) { return a + b; });

TEST(TvmRuntime, is_used_once_a_module_has_brought_it) {
  Session s = make_session();
  DModule rows = s.load_vm_module(library("rows"));  // before: ours
  const auto error_of = [&](const DPackedFunc& f) {
    return message_of<RemoteError>([&] {
      f();
      s.sync_all();
    });
  };
  EXPECT_NE(error_of(rows["raise"]).find("ValueError: as asked"), std::string::npos);

  DModule tvm = s.load_vm_module(library("uses_tvm_ffi"));
  const int last = s.num_workers() - 1;
  const auto uses = [&] { return tvm["uses"]().debug_get_from_remote(last).as<int>(); };
  const int before = uses();
  EXPECT_NE(error_of(tvm["raise"]).find("ValueError: by way of libtvm_ffi"), std::string::npos);
  const int after = uses();
  EXPECT_GE(after, before + 2);                                                        // set and fetched there
  EXPECT_NE(error_of(rows["raise"]).find("ValueError: as asked"), std::string::npos);  // for modules loaded before, too
  EXPECT_GT(uses(), after);
  EXPECT_EQ(s.call(rows["call_global"], {"tvm_test.add", 40, 2}).debug_get_from_remote(last), Value(42));  // ours are found
  DRef answer = s.call(rows["call_global"], {"ffi.ModuleGetFunction", {}, "answer"});                      // and theirs
  EXPECT_EQ(s.call(answer, {}).debug_get_from_remote(last), Value(42));

  DModule vm = s.load_vm_module(library("tvm_virtual_machine"));
  EXPECT_EQ(vm["answer"]().debug_get_from_remote(last), Value(42));
  s.sync_all();
  vm["missing"];
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(); }).find("no function 'missing'"), std::string::npos);
}

}  // namespace

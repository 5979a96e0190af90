// Modules on every kind of session: each row of the calling convention both ways, reference counts, loading.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>

#include "support/session_kinds.h"

namespace {

using namespace tutti;
using namespace tutti_test;
namespace fs = std::filesystem;

std::string library(const std::string& name) { return std::string(TUTTI_TEST_MODULES) + "/" + name + ".so"; }

std::atomic<int> destroyed_here{0};

const bool registered = [] {
  register_global_func("module_test.add", [](int64_t a, int64_t b) { return a + b; });
  register_global_func("module_test.throws", [](const std::string& text) { throw std::out_of_range(text); });
  register_global_func("module_test.throws_without_words", [] {
    struct Silent : std::exception {
      const char* what() const noexcept override { return nullptr; }
    };
    throw Silent();
  });
  register_global_func("module_test.describe", [](Args args) {
    std::string text;
    for (const Value& arg : args) text += to_string(arg) + "; ";
    return text;
  });
  register_global_func("module_test.sum_views", [](const Tensor& t, const std::string& s, const Bytes& b) {
    double sum = 0;
    for (float x : t.values<float>()) sum += x;
    return sum + static_cast<double>(s.size()) * 100 + static_cast<double>(b.size()) * 10000;
  });
  register_global_func("module_test.echo", [](const Value& v) { return v; });
  register_global_func("module_test.destroyed", [](int64_t) { ++destroyed_here; });
  register_global_func("module_test.destroyed_here", [] { return destroyed_here.load(); });
  register_global_func("module_test.allreduce_id", [](const Tensor& t) {
    t.values<float>()[0] = static_cast<float>(worker::id());
    worker::world().allreduce(t, t);
  });
  return true;
}();

/// The value on every worker, which must be the same.
Value everywhere(Session& s, const DRef& ref) {
  Value first = ref.debug_get_from_remote(0);
  for (int w = 1; w < s.num_workers(); ++w) EXPECT_EQ(ref.debug_get_from_remote(w), first) << "worker " << w;
  return first;
}

class Module : public testing::Test {
 protected:
  Value call(const char* name, const List& args = {}) { return everywhere(s, s.call(rows[name], args)); }
  std::string error_of(const char* name, const List& args = {}) {
    return message_of<RemoteError>([&] {
      s.call(rows[name], args);
      s.sync_all();
    });
  }
  Value live() {        // objects of the module's own making that are there, in the process
    call("make_none");  // a command that carries the ids of dropped registers, done on all workers
    s.sync_all();
    return call("live");
  }
  Session s = make_session();
  DModule rows = s.load_vm_module(library("rows"));
};

TEST_F(Module, takes_every_kind_of_argument) {
  const std::string long_text = "a text that does not fit into a value";
  const auto index = [&](Value v) { return call("type_index_of", {std::move(v)}).as<int>(); };
  EXPECT_EQ(index({}), 0);
  EXPECT_EQ(index(5), 1);
  EXPECT_EQ(index(true), 2);
  EXPECT_EQ(index(2.5), 3);
  EXPECT_EQ(index(kFloat16), 5);
  EXPECT_EQ(index(cuda(1)), 6);
  EXPECT_EQ(index("seven.."), 11);
  EXPECT_EQ(index(Bytes(7)), 12);
  EXPECT_EQ(index(long_text), 65);
  EXPECT_EQ(index(Bytes(8)), 66);
  EXPECT_EQ(index(s.get_global_func("module_test.add")), 68);
  EXPECT_EQ(index(Shape{1, 2}), 69);
  EXPECT_EQ(index(floats({1, 2})), 70);
  EXPECT_EQ(index(Value(List{1, "two"})), 71);
  EXPECT_EQ(index(rows), 64);  // an opaque object of ours

  EXPECT_EQ(call("length", {long_text}).as<size_t>(), long_text.size());
  EXPECT_EQ(call("length", {""}).as<int>(), 0);
  EXPECT_EQ(call("length", {std::string("a\0b", 3)}).as<int>(), 3);
  EXPECT_EQ(call("length", {Bytes(100)}).as<int>(), 100);
  EXPECT_EQ(call("length", {Shape{1, 2, 3}}).as<int>(), 3);
  EXPECT_EQ(call("length", {Value(List{1, List{}, "x"})}).as<int>(), 3);
  EXPECT_EQ(call("sum", {floats({1, 2, 3.5})}).as<double>(), 6.5);
  EXPECT_EQ(call("dtype_name", {kBFloat16}), Value("bfloat16"));
}

TEST_F(Module, gives_back_what_it_got) {
  for (const Value& v : List{{},
                             -3,
                             true,
                             false,
                             1.25,
                             "",
                             "small",
                             "a longer piece of text",
                             Bytes{std::byte{1}},
                             Bytes(50),
                             Shape{},
                             Shape{7, 8},
                             kInt8,
                             cpu(2),
                             floats({1, 2, 3}),
                             List{1, "two", List{3.0}, Shape{4}},
                             List{}})
    EXPECT_EQ(call("echo", {v}), v) << to_string(v);
}

TEST_F(Module, every_kind_of_result) {
  EXPECT_EQ(call("make_none"), Value());
  EXPECT_EQ(call("make_int"), Value(-7));
  EXPECT_EQ(call("make_bool"), Value(true));
  EXPECT_EQ(call("make_float"), Value(2.5));
  EXPECT_EQ(call("make_dtype"), Value(kBFloat16));
  EXPECT_EQ(call("make_device"), Value(cuda(3)));
  EXPECT_EQ(call("make_small_str"), Value("seven.."));
  EXPECT_EQ(call("make_str"), Value("a string that is no small one"));
  EXPECT_EQ(call("make_bytes").as<Bytes>().size(), 19u);
  EXPECT_EQ(call("make_own_str"), Value("kept by the module"));
  EXPECT_EQ(call("make_own_shape"), Value(Shape{4, 5}));
  EXPECT_EQ(call("make_own_array"), (Value(List{1, "two"})));
  EXPECT_EQ(to_vector(call("make_tensor")), iota(4));
  EXPECT_EQ(call("is_our_pointer", {s.call(rows["make_pointer"], {})}), Value(true));
  EXPECT_EQ(live(), Value(0));  // all of them are copied or gone
}

TEST_F(Module, tensors_share_memory_both_ways) {
  DRef mine = s.broadcast(floats({1, 2, 3}));
  s.call(rows["scale"], {mine, 2.0});
  EXPECT_EQ(to_vector(everywhere(s, mine)), (std::vector<float>{2, 4, 6}));
  DRef same = s.call(rows["echo"], {mine});  // our own tensor comes back, not a copy
  s.call(rows["scale"], {same, 0.5});
  EXPECT_EQ(to_vector(everywhere(s, mine)), (std::vector<float>{1, 2, 3}));

  DRef theirs = s.call(rows["make_own_tensor"], {});  // column-major
  EXPECT_EQ(live(), Value(kind() == "thread" ? s.num_workers() : 1));
  const Value copy = everywhere(s, theirs);
  EXPECT_EQ(copy.as<Tensor>().shape(), (Shape{2, 3}));
  EXPECT_EQ(to_vector(copy.as<Tensor>().contiguous()), iota(6));
  theirs = {};
  EXPECT_EQ(live(), Value(0));  // the register's death freed it
}

TEST_F(Module, a_module_may_keep_a_tensor) {
  DRef slots = s.get_global_func("runtime.disco.worker_rank")();  // threads share the module's variables: one slot a worker
  DRef mine = s.broadcast(floats({5, 6}));
  s.call(rows["keep"], {slots, mine});
  mine = {};
  s.sync_all();
  DRef back = s.call(rows["give_back"], {slots});
  EXPECT_EQ(to_vector(everywhere(s, back)), (std::vector<float>{5, 6}));
}

TEST_F(Module, calls_functions_of_ours) {
  EXPECT_EQ(call("call_global", {"module_test.add", 20, 22}), Value(42));
  EXPECT_EQ(call("apply", {s.get_global_func("module_test.add"), 1, 2}), Value(3));
  EXPECT_EQ(call("call_with_views", {s.get_global_func("module_test.sum_views")}), Value(6.0 + 1000 + 60000));
  EXPECT_EQ(call("call_giving_away", {s.get_global_func("module_test.echo")}), Value("kept by the module"));
  EXPECT_EQ(live(), Value(0));
  EXPECT_EQ(call("call_global", {"module_test.describe", {}, 1, true, 2.5, "x", Shape{2}, kInt8, cpu(), List{1}}),
            Value("None; int 1; bool true; float 2.5; str 'x'; shape (2,); dtype int8; device cpu(0); list of 1; "));
  EXPECT_NE(error_of("call_global", {"nowhere"}).find("no such global function"), std::string::npos);
  // a collective inside a function that a module calls
  DRef t = s.empty({1}, kFloat32);
  s.call(rows["call_global"], {"module_test.allreduce_id", t});
  const int n = s.num_workers();
  EXPECT_EQ(to_vector(everywhere(s, t))[0], static_cast<float>(n * (n - 1) / 2));
}

TEST_F(Module, functions_as_values) {
  DRef add5 = s.call(rows["make_adder"], {5});
  EXPECT_EQ(everywhere(s, s.call(add5, {37})), Value(42));
  EXPECT_EQ(call("apply", {add5, 1}), Value(6));  // back into the module
  add5 = {};
  EXPECT_EQ(live(), Value(0));
  s.call(rows["register_triple"], {});
  EXPECT_EQ(everywhere(s, s.get_global_func("rows.triple")(14)), Value(42));
}

TEST_F(Module, objects_of_its_own_stay_on_their_worker) {
  DRef object = s.call(rows["make_own_object"], {});
  EXPECT_EQ(call("read_own_object", {object}), Value(42.0));
  EXPECT_EQ(call("read_own_object", {s.call(rows["echo"], {object})}), Value(42.0));
  if (s.num_workers() > 1) {
    const std::string message = message_of<UsageError>([&] { object.debug_get_from_remote(s.num_workers() - 1); });
    EXPECT_NE(message.find("can't travel"), std::string::npos) << message;
  }
  object = {};
  EXPECT_EQ(live(), Value(0));
}

TEST_F(Module, errors_have_kind_message_and_backtrace) {
  try {
    s.call(rows["raise_with_backtrace"], {});
    s.sync_all();
    FAIL() << "nothing was raised";
  } catch (const RemoteError& error) {
    EXPECT_EQ(error.failures().front().kind, "IndexError");
    EXPECT_EQ(error.failures().front().message, "out of it");
    EXPECT_EQ(error.failures().front().traceback, "rows.c:1 in inner\nrows.c:2 in outer\n");
    EXPECT_EQ(error.failures().front().function, "raise_with_backtrace");
    EXPECT_EQ(error.failures().size(), static_cast<size_t>(s.num_workers()));
  }
  EXPECT_NE(error_of("raise").find("ValueError: as asked"), std::string::npos);
  EXPECT_NE(error_of("raise_in_parts").find("KeyError: one, two, three"), std::string::npos);
  // what a function of ours throws inside a module arrives as itself
  EXPECT_NE(error_of("call_global", {"module_test.throws", "far out"}).find("std::out_of_range: far out"), std::string::npos);
  EXPECT_NE(error_of("call_global", {"module_test.throws_without_words"}).find("Silent: what() of the exception is null"),
            std::string::npos);
  EXPECT_NE(error_of("call_global", {"module_test.add", 1}).find("module_test.add: expected 2 arguments, got 1"),
            std::string::npos);
  EXPECT_EQ(call("catch", {rows["raise"]}), Value("as asked"));
  EXPECT_EQ(call("make_int"), Value(-7));  // and on it goes
}

TEST_F(Module, an_error_tells_its_causes) {
  const std::string cause = "\ncaused by ValueError: no row is left";
  for (const int causes : {0, 1, 2, 1000}) {
    std::string expected = "ValueError: no row is left";
    for (int i = 0; i < std::min(causes, 16); ++i) expected += cause;
    const auto message = message_of<RemoteError>([&] { call("raise_with_causes", {causes}); });
    EXPECT_NE(message.find(expected), std::string::npos) << message;
    EXPECT_EQ(message.find(expected + cause), std::string::npos) << message;
  }
}

TEST_F(Module, an_error_owns_its_cause) { EXPECT_EQ(call("causes", {rows["raise"]}), Value(1)); }

TEST_F(Module, a_stream_is_kept) { EXPECT_EQ(call("stream"), Value(true)); }

TEST_F(Module, context_of_compiled_kernels_is_filled_in) {
  DModule context = s.load_vm_module(library("context"));
  EXPECT_EQ(everywhere(s, context["call_import"](20, 22)), Value(42));
  context["call_missing"]();
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(); }).find("'module_test.nowhere'"), std::string::npos);
  context["raise"]();
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(); }).find("through a variable"), std::string::npos);
}

TEST_F(Module, what_keeps_a_library_from_loading) {
  const fs::path folder = fs::temp_directory_path() / ("tutti_module_test_" + std::to_string(getpid()));
  fs::create_directories(folder);
  const auto expect = [&](const std::string& path, const std::string& text) {
    s.load_vm_module(path);
    const std::string message = message_of<RemoteError>([&] { s.sync_all(); });
    EXPECT_NE(message.find(text), std::string::npos) << path << ": " << message;
  };
  const auto changed = [&](const char* name, size_t at, std::vector<char> bytes) {
    const fs::path copy = folder / name;
    fs::copy_file(library("rows"), copy, fs::copy_options::overwrite_existing);
    std::fstream file(copy, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return copy.string();
  };
  expect("/nowhere/lib.so", "No such file");
  expect(folder, "not a file");
  std::ofstream(folder / "text.so") << "hello";
  expect(folder / "text.so", "it is no ELF file");
  std::ofstream(folder / "empty.so").flush();
  expect(folder / "empty.so", "it is no ELF file");
  std::ofstream(folder / "cut.so") << "\x7f"
                                      "ELF";
  expect(folder / "cut.so", "cut short");
  fs::copy_file(library("weights"), folder / "half.so");
  fs::resize_file(folder / "half.so", fs::file_size(library("weights")) / 2);
  expect(folder / "half.so", "cut short or damaged: the file has ");
  std::ofstream(folder / "huge.so").flush();
  fs::resize_file(folder / "huge.so", uintmax_t{1} << 40);  // a hole; no machine could read all of it
  expect(folder / "huge.so", "it is no ELF file");
  ASSERT_EQ(mkfifo((folder / "pipe.so").c_str(), 0600), 0);
  expect(folder / "pipe.so", "not a file");
  expect(library("rows") + std::string("\0.so", 4), "rows.so\\0.so has a zero byte");
  expect(changed("aarch64.so", 18, {'\xb7', 0}), "is for aarch64, this process is x86-64");
  expect(changed("object.so", 16, {1, 0}), "an object file");
  expect(changed("wild_headers.so", 32, {'\xff', '\xff', '\xff', '\xff', '\xff', '\xff', '\xff', '\x7f'}), "damaged");
  expect(library("needs_symbol"), "undefined symbol: nowhere_to_be_found");
  expect(library("needs_tvm_symbol"), "undefined symbol: TVMFFIBigIntFromByteArray; libtvm_ffi has it: install apache-tvm-ffi");
  expect(library("needs_tvm_backend"), "TVM's runtime");
  expect(library("constructor_throws"), "a constructor threw: not today");
  expect(library("constructor_throws"), "NotToday");
  expect(library("no_initialization"), "no vm_initialization");
  rows[std::string("make_int\0", 9)];
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(); }).find("no function 'make_int\\x00'"), std::string::npos);
  rows["not_there"];
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(); }).find("no function 'not_there'"), std::string::npos);
  s.load_vm_module(library("version_1"))["no_function"];
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(); }).find("is not a function"), std::string::npos);
  EXPECT_EQ(call("make_int"), Value(-7));
  s.shutdown();
  fs::remove_all(folder);
}

TEST_F(Module, one_load_per_process_and_file_and_anew_when_it_changes) {
  const fs::path folder = fs::temp_directory_path() / ("tutti_module_version_" + std::to_string(getpid()));
  const fs::path path = folder / "version.so";
  fs::create_directories(folder);
  fs::copy_file(library("version_1"), path);
  DModule first = s.load_vm_module(path.string());
  EXPECT_EQ(everywhere(s, first["version"]()), Value(11));  // version 1, constructed once
  EXPECT_EQ(everywhere(s, s.load_vm_module(path.string())["version"]()), Value(11));
  s.sync_all();
  fs::copy_file(library("version_2"), path, fs::copy_options::overwrite_existing);  // in place: the same file, other bytes
  fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(1));
  EXPECT_EQ(everywhere(s, s.load_vm_module(path.string())["version"]()), Value(21));
  EXPECT_EQ(everywhere(s, first["version"]()), Value(11));  // who has the old one keeps it
  fs::remove(path);
  fs::copy_file(library("version_1"), path);  // another file of that name
  fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(2));
  EXPECT_EQ(everywhere(s, s.load_vm_module(path.string())["version"]()), Value(11));
  fs::remove_all(folder);
}

TEST_F(Module, finds_libraries_beside_it) {
  EXPECT_EQ(everywhere(s, s.load_vm_module(library("has_neighbour"))["neighbour"]()), Value(17));
}

TEST_F(Module, a_virtual_machine_keeps_its_state_in_its_object) {
  auto destroyed = s.get_global_func("module_test.destroyed_here");
  const int before = destroyed().debug_get_from_remote(0).as<int>();
  DModule vm = s.load_vm_module(library("stateful"), cpu(0));
  const List expected{1, 0, 2, 1, 0, 2};  // cpu(0) pooled, host cpu(0) pooled: as Disco
  for (int i = 0; i < 6; ++i) EXPECT_EQ(everywhere(s, vm["initialized_with"](i)), expected[static_cast<size_t>(i)]);
  DModule another = s.load_vm_module(library("stateful"));
  vm["increment"]();
  EXPECT_EQ(everywhere(s, vm["increment"]()), Value(2));
  EXPECT_EQ(everywhere(s, another["increment"]()), Value(1));
  DRef a = s.broadcast(floats({1, 2, 3, 4, 5, 6}, {2, 3})), b = s.broadcast(floats({1, 0, 0, 1, 1, 1}, {3, 2}));
  DRef c = s.empty({2, 2}, kFloat32);
  vm["matmul"](a, b, c);
  EXPECT_EQ(to_vector(everywhere(s, c)), (std::vector<float>{4, 5, 10, 11}));
  EXPECT_EQ(everywhere(s, vm["workspace_size"]()), Value(6));
  vm["matmul"](a, a, c);
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(); }).find("the shapes do not fit"), std::string::npos);
  auto increment = vm["increment"];
  s.sync_all();
  vm = {};
  EXPECT_EQ(everywhere(s, increment()), Value(3));  // a function keeps its object
  EXPECT_EQ(destroyed().debug_get_from_remote(0).as<int>(), before);
  increment = {};
  another = {};
  live();  // freed on all workers
  const int workers_here = kind() == "thread" ? s.num_workers() : 1;
  EXPECT_EQ(destroyed().debug_get_from_remote(0).as<int>(), before + 2 * workers_here);
}

}  // namespace

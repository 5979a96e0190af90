// Saving and loading on every kind of session. Python's suite compares many more with numpy.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>
#include <tuple>

#include "support/session_kinds.h"

namespace {

using namespace tutti;
using namespace std::chrono_literals;
using namespace tutti::distributed;
using namespace tutti_test;
namespace fs = std::filesystem;

const bool registered[] = {
    register_global_func("checkpoint.sleep", [](int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }),
    register_global_func("checkpoint.add",
                         [](const Tensor& part, double more) {
                           for (float& x : part.values<float>()) x += static_cast<float>(more);
                         }),
    register_global_func(
        "checkpoint.wrong_on",
        [](const Tensor& part, int worker) { return worker::id() == worker ? Tensor::empty({1}, kInt8) : part; }),
};

DeviceMesh all() { return DeviceMesh({workers()}); }
ChoosePlacement everywhere(const char* text) {
  return [placement = Placement::from_text(text)](const std::string&, const TensorStructInfo&) { return placement; };
}

class Checkpoint : public testing::Test {
 protected:
  Checkpoint() { fs::create_directories(folder); }
  ~Checkpoint() override { fs::remove_all(folder); }
  std::string path(const char* name) const { return (folder / name).string(); }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
  }
  DTensor tensor(Session& s, const char* placement, float first = 0) const {
    return distribute(s, floats(iota(35, first), {7, 5}), all(), Placement::from_text(placement));
  }
  const fs::path folder = fs::path(testing::TempDir()) / ("checkpoint" + std::to_string(getpid()));
};

TEST_F(Checkpoint, what_is_saved_by_rows_is_loaded_by_columns) {
  Session s = make_session();
  for (const char* name : {"x.safetensors", "x.safetensors.index.json"}) {
    save(s, path(name), {{"a", tensor(s, "S[0]")}, {"b", tensor(s, "R", 100)}, {"c", tensor(s, "S[1]", 200)}}, {.file_bytes = 1});
    auto loaded = load(s, path(name), all(), everywhere("S[1]"));
    ASSERT_EQ(loaded.size(), 3u);
    EXPECT_EQ(to_vector(loaded.at("a").full()), iota(35));
    EXPECT_EQ(to_vector(loaded.at("b").full()), iota(35, 100));
    EXPECT_EQ(to_vector(loaded.at("c").full()), iota(35, 200));
    EXPECT_EQ(stored_tensors(path(name)).at("a"), (TensorStructInfo{{7, 5}, kFloat32}));
  }
  EXPECT_EQ(files().size(), 5u);  // an index and a file for each tensor; nothing else is left
  save(s, path("x.safetensors.index.json"), {{"a", tensor(s, "S[0]")}});
  EXPECT_EQ(files().size(), 3u);
}

TEST_F(Checkpoint, npy_and_a_worker_outside) {
  Session s = make_session();
  const DeviceMesh last({1}, {workers() - 1});
  save(s, path("x.npy"), {{"a", tensor(s, "S[0]").redistribute(Placement::from_text("R"), last)}});
  EXPECT_EQ(to_vector(load(s, path("x.npy"), last, everywhere("S[0]")).at("").full()), iota(35));
  EXPECT_EQ(files(), std::vector<std::string>{"x.npy"});
}

TEST_F(Checkpoint, partial_values_are_reduced_and_made) {
  Session s = make_session();
  const DTensor sum(s.broadcast(floats(iota(6), {2, 3})), DTensorStructInfo({{2, 3}}, all(), Placement::from_text("P")));
  save(s, path("x.safetensors"), {{"sum", sum}});
  std::vector<float> expected = iota(6);
  for (float& x : expected) x *= static_cast<float>(workers());
  for (const char* placement : {"R", "P", "S[1]"})
    EXPECT_EQ(to_vector(load(s, path("x.safetensors"), all(), everywhere(placement)).at("sum").full()), expected);
}

TEST_F(Checkpoint, an_asynchronous_save_keeps_what_was) {
  Session s = make_session();
  const DTensor x = tensor(s, "S[0]");
  Saving saving = save_async(s, path("x.safetensors"), {{"x", x}});
  s.call(s.get_global_func("checkpoint.add"), {x.parts(), 1.0});
  saving.wait();
  EXPECT_TRUE(saving.is_done());
  EXPECT_EQ(saving.bytes_written(), 35 * 4);
  EXPECT_EQ(saving.total_bytes(), 35 * 4);
  EXPECT_EQ(to_vector(load(s, path("x.safetensors"), all(), everywhere("R")).at("x").full()), iota(35));
  EXPECT_EQ(to_vector(x.full()), iota(35, 1));
}

TEST_F(Checkpoint, a_save_whose_handle_or_session_goes_comes_to_its_end) {
  {
    Session s = make_session();
    std::ignore = save_async(s, path("x.safetensors"), {{"x", tensor(s, "S[0]")}});
    EXPECT_TRUE(fs::exists(path("x.safetensors")));
    std::optional<Saving> saving = save_async(s, path("y.safetensors"), {{"x", tensor(s, "S[0]")}});
    Saving other = save_async(s, path("z.safetensors"), {{"x", tensor(s, "S[0]")}});
    s.shutdown();
    EXPECT_NO_THROW(saving.reset());
    EXPECT_EQ(message_of<Error>([&] { other.wait(); }), "");
  }
  EXPECT_EQ(files(), (std::vector<std::string>{"x.safetensors", "y.safetensors", "z.safetensors"}));
}

TEST_F(Checkpoint, a_worker_that_fails_leaves_the_earlier_files) {
  Session s = make_session();
  const DTensor x = tensor(s, "S[0]");
  save(s, path("x.safetensors"), {{"x", x}});
  for (const bool is_async : {false, true}) {
    const DRef wrong = s.call(s.get_global_func("checkpoint.wrong_on"), {x.parts(), workers() - 1});
    const std::string why = message_of<RemoteError>([&] {
      if (is_async) std::ignore = save_async(s, path("x.safetensors"), {{"x", DTensor(wrong, x.info())}});
      else save(s, path("x.safetensors"), {{"x", DTensor(wrong, x.info())}});
    });
    EXPECT_NE(why.find("worker " + std::to_string(workers() - 1) + "'s part"), std::string::npos) << why;
    EXPECT_EQ(files(), std::vector<std::string>{"x.safetensors"});
  }
  EXPECT_EQ(to_vector(load(s, path("x.safetensors"), all(), everywhere("R")).at("x").full()), iota(35));
  const std::string why = message_of<SystemError>([&] { save(s, path("none/x.safetensors"), {{"x", x}}); });
  EXPECT_NE(why.find("No such file"), std::string::npos) << why;
  EXPECT_THROW(save(s, path("x.bin"), {{"x", x}}), UsageError);
  EXPECT_THROW(save(s, path("x.npy"), {{"x", x}, {"y", x}}), UsageError);
  EXPECT_THROW(save(s, path("x.safetensors"), {{"", x}}), UsageError);
  EXPECT_EQ(files(), std::vector<std::string>{"x.safetensors"});
}

/// The workers come to it later, find that it has been given up, and go on.
TEST_F(Checkpoint, who_is_told_of_a_save_sees_its_end) {
  Session s = make_session();
  const DTensor x = tensor(s, "S[0]");
  std::optional<Saving> told;
  std::string refused;
  const auto keep = [&](const Saving& saving) {
    told = saving;
    refused = message_of<UsageError>([&] { told->wait(); });
  };
  save(s, path("x.safetensors"), {{"x", x}}, {.begun = keep});
  EXPECT_NE(refused.find("the workers begin when that returns"), std::string::npos) << refused;
  ASSERT_TRUE(told);
  EXPECT_TRUE(told->is_done());
  EXPECT_EQ(told->bytes_written(), 35 * 4);
  EXPECT_NO_THROW(told->wait());
  const auto refuse = [&](const Saving& saving) {
    told = saving;
    throw std::runtime_error("not now");
  };
  EXPECT_EQ(message_of<std::runtime_error>([&] { save(s, path("y.safetensors"), {{"x", x}}, {.begun = refuse}); }), "not now");
  EXPECT_TRUE(told->is_done());
  EXPECT_EQ(message_of<std::runtime_error>([&] { told->wait(); }), "not now");
  EXPECT_EQ(files(), std::vector<std::string>{"x.safetensors"});
}

TEST_F(Checkpoint, a_save_that_was_not_waited_for_makes_nothing) {
  Session s = make_session();
  const DTensor x = tensor(s, "S[0]");
  save(s, path("x.safetensors"), {{"x", x}});
  const DTensor other = tensor(s, "S[0]", 100);
  s.sync_all();
  for (const bool is_async : {false, true}) {
    s.call(s.get_global_func("checkpoint.sleep"), {300});
    EXPECT_THROW(
        {
          if (is_async) std::ignore = save_async(s, path("x.safetensors"), {{"x", other}}, {}, 50ms);
          else save(s, path("x.safetensors"), {{"x", other}}, {}, 50ms);
        },
        TimeoutError);
    EXPECT_EQ(message_of<Error>([&] { s.sync_all(); }), "");
    for (int i = 0; i < 500 && files().size() > 1; ++i) std::this_thread::sleep_for(10ms);
    EXPECT_EQ(files(), std::vector<std::string>{"x.safetensors"});
    EXPECT_EQ(to_vector(load(s, path("x.safetensors"), all(), everywhere("R")).at("x").full()), iota(35));
  }
}

TEST_F(Checkpoint, of_saves_to_one_path_the_last_one_counts) {
  Session s = make_session();
  for (const char* name : {"x.safetensors", "x.safetensors.index.json"}) {
    std::vector<Saving> savings;
    for (int i = 0; i < 10; ++i)
      savings.push_back(save_async(s, path(name), {{"x", tensor(s, "S[0]", static_cast<float>(i))}}, {.file_bytes = 1}));
    for (Saving& saving : savings) EXPECT_EQ(message_of<Error>([&] { saving.wait(); }), "");
    EXPECT_EQ(to_vector(load(s, path(name), all(), everywhere("R")).at("x").full()), iota(35, 9));
  }
  EXPECT_EQ(files().size(), 3u);
}

/// The first one takes longer than the last one.
TEST_F(Checkpoint, a_save_that_fails_leaves_the_order_of_the_others) {
  Session s = make_session();
  const DTensor large = zeros(s, {{{8 << 20}}, all(), Placement::from_text("S[0]")}), x = tensor(s, "S[0]");
  const DRef wrong = s.call(s.get_global_func("checkpoint.wrong_on"), {x.parts(), 0});
  Saving first = save_async(s, path("x.safetensors"), {{"large", large}});
  EXPECT_THROW(save(s, path("x.safetensors"), {{"x", DTensor(wrong, x.info())}}), RemoteError);
  save(s, path("x.safetensors"), {{"x", x}});
  EXPECT_EQ(message_of<Error>([&] { first.wait(); }), "");
  EXPECT_EQ(stored_tensors(path("x.safetensors")).size(), 1u);
  EXPECT_TRUE(stored_tensors(path("x.safetensors")).contains("x"));
  EXPECT_EQ(files(), std::vector<std::string>{"x.safetensors"});
}

/// As in huggingface's cache: names that are links to files with others.
TEST_F(Checkpoint, a_link_is_read_and_replaced) {
  Session s = make_session();
  const DTensor x = tensor(s, "S[0]");
  save(s, path("x.safetensors"), {{"x", x}});
  fs::rename(path("x.safetensors"), path("blob"));
  fs::create_symlink("blob", path("x.safetensors"));
  EXPECT_EQ(to_vector(load(s, path("x.safetensors"), all(), everywhere("S[1]")).at("x").full()), iota(35));
  save(s, path("x.safetensors"), {{"x", tensor(s, "S[0]", 50)}});
  EXPECT_FALSE(fs::is_symlink(path("x.safetensors")));
  EXPECT_EQ(to_vector(load(s, path("x.safetensors"), all(), everywhere("S[1]")).at("x").full()), iota(35, 50));
  EXPECT_EQ(files(), (std::vector<std::string>{"blob", "x.safetensors"}));
  fs::create_directory(path("y.safetensors"));
  EXPECT_THROW(save(s, path("y.safetensors"), {{"x", x}}), UsageError);
}

TEST_F(Checkpoint, a_byte_that_has_changed_is_found) {
  Session s = make_session();
  save(s, path("x.safetensors"), {{"left", tensor(s, "S[0]")}, {"x", tensor(s, "S[0]", 100)}});
  std::fstream file(path("x.safetensors"), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('?');
  file.close();
  for (const char* placement : {"R", "S[0]", "S[1]"}) {
    const std::string why = message_of<RemoteError>([&] { load(s, path("x.safetensors"), all(), everywhere(placement)); });
    EXPECT_NE(why.find("'x' has CRC-32"), std::string::npos) << why;
    EXPECT_EQ(why.find("'left'"), std::string::npos) << why;
  }
  EXPECT_NO_THROW(load(s, path("x.safetensors"), all(), everywhere("R"), {.verify = false}));
  fs::resize_file(path("x.safetensors"), fs::file_size(path("x.safetensors")) - 1);
  const std::string why = message_of<UsageError>([&] { load(s, path("x.safetensors"), all(), everywhere("R")); });
  EXPECT_NE(why.find("cut off"), std::string::npos) << why;
  EXPECT_EQ(to_vector(tensor(s, "S[0]").full()), iota(35));  // the session goes on
}

}  // namespace

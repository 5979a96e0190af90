// Headers of safetensors and .npy files and indexes: what is written is read again, what is damaged is refused by name.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "checkpoint/crc.h"
#include "checkpoint/file.h"
#include "checkpoint/layout.h"
#include "checkpoint/ledger.h"
#include "checkpoint/runs.h"
#include "checkpoint/stored.h"
#include "tutti/error.h"

namespace {

using namespace tutti;
using namespace tutti::distributed;
namespace fs = std::filesystem;

std::string file_of(const std::string& header) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header;
}
std::string refusal(const std::string& header, int64_t data_bytes) {
  const std::string text = file_of(header);
  try {
    parse_safetensors(text, std::ssize(text) + data_bytes, "f");
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(Formats, what_safetensors_says_is_read_again) {
  Catalogue tensors;
  tensors["weights"] = {{{3, 4}, kFloat32}, {}, 0, 0x1234abcdu};
  tensors["b\"\u00e4"] = {{{}, kInt8}, {}, 0, 7u};
  tensors["none"] = {{{0, 5}, kFloat64}, {}, 0, 0u};
  std::string front = format_safetensors(tensors, {{"step", "12"}});
  EXPECT_EQ(front.size() % 64, 0u);
  auto found = parse_safetensors(front, std::ssize(front) + 49, "f");
  ASSERT_EQ(found.size(), 3u);
  for (const auto& [name, stored] : tensors) {
    EXPECT_EQ(found.at(name).sinfo, stored.sinfo) << name;
    EXPECT_EQ(found.at(name).begin, stored.begin) << name;
    EXPECT_EQ(found.at(name).crc, stored.crc) << name;
  }
  EXPECT_EQ(tensors.at("weights").begin, std::ssize(front));  // larger elements first: all lie aligned
  EXPECT_EQ(tensors.at("b\"\u00e4").begin, std::ssize(front) + 48);
}

TEST(Formats, damaged_safetensors_are_refused) {
  const std::string ok = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_EQ(refusal("{" + ok + "}", 8), "");
  EXPECT_EQ(refusal(R"({"__metadata__":null,"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1}})", 8), "");
  Catalogue bad;
  bad["\xff"].sinfo = {{2}, kFloat32};
  EXPECT_THROW(format_safetensors(bad, {}), UsageError);
  for (const auto& [header, bytes, expected] : {
           std::tuple("{" + ok + "}", 7, "cut off"),
           {"{" + ok + "}", 9, "damaged"},
           {"{" + ok + "," + ok + "}", 8, "comes twice"},
           {"{" + ok + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", 8, "overlap"},
           {"{" + ok + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[12,16]}})", 16, "holes"},
           {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8, "has 12 bytes"},
           {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, "data_offsets are [8, 0]"},
           {R"({"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", 8, "dtype 'F33'"},
           {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, "expected a number"},
           {R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8, "expected a number"},
           {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, "'a': "},
           {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,0]}})", 0, "expected a number"},
           {R"({"a":{"dtype":"F32","shape":[2]}})", 8, "expected dtype, shape and data_offsets"},
           {R"({"a":7})", 8, "expected dtype"},
           {R"({"__metadata__":{"x":1}})", 0, "__metadata__"},
           {R"({"__metadata__":{"tutti.crc32":"{\"a\":1}"}})", 0, "no checksum"},
           {R"({"__metadata__":{"tutti.crc32":"["}})", 0, "no JSON"},
           {"[]", 0, "JSON object"},
           {"{\"\xff\": 1}", 0, "no JSON"},
           {"", 0, "no JSON"},
           {std::string(100000, '[') + std::string(100000, ']'), 0, "levels deep"},
           {R"({"a":{"dtype":"F32","shape":[[)" + std::string(100000, '[') + std::string(100000, ']') + "]]}}", 0, "levels deep"},
           {"{\"a\":{\"dtype\":\"F32\",\"shape\":[\"\xc3\xa4\"],\"data_offsets\":[0,8]}}", 8, "got \"\\u00e4\""},
           {"{" + ok + "}" + std::string(1, '\0') + "}", 8, "NUL"},
       })
    EXPECT_NE(refusal(header, bytes).find(expected), std::string::npos)
        << header.substr(0, 100) << ": " << refusal(header, bytes);
  std::string huge = file_of("{}");
  huge[7] = 1;
  EXPECT_THROW(parse_safetensors(huge, std::ssize(huge), "f"), UsageError);
  EXPECT_THROW(parse_safetensors("\x01", 1, "f"), UsageError);
}

TEST(Formats, npy) {
  for (const TensorStructInfo& sinfo : {TensorStructInfo{{3, 4}, kFloat32}, {{}, kInt64}, {{7}, kBool}, {{0, 2}, kComplex128}}) {
    const std::string front = format_npy(sinfo);
    EXPECT_EQ(front.size() % 64, 0u);
    const Catalogue found = parse_npy(front + "more", std::ssize(front) + size_bytes(sinfo.shape, sinfo.dtype), "f");
    EXPECT_EQ(found.at("").sinfo, sinfo);
    EXPECT_EQ(found.at("").begin, std::ssize(front));
    EXPECT_THROW(parse_npy(front, std::ssize(front) + size_bytes(sinfo.shape, sinfo.dtype) + 1, "f"), UsageError);
  }
  EXPECT_THROW(format_npy({{2}, kBFloat16}), UsageError);
  const auto refused = [](const std::string& dict) {
    const auto length = static_cast<uint16_t>(dict.size());
    const std::string text = std::string("\x93NUMPY\x01\0", 8) + std::string(reinterpret_cast<const char*>(&length), 2) + dict;
    try {
      parse_npy(text, std::ssize(text) + 8, "f");
      return std::string();
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(refused("{\"shape\": (2,), 'descr': '<f4', 'fortran_order': False}\n"), "");
  for (const auto& [dict, expected] : {
           std::pair("{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", "dtype '>f4'"),
           {"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }", "column-major"},
           {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", "records"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': (2), }", "expected ','"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", "2^63"},
           {"{'descr': '<f4', 'fortran_order': False, }", "expected descr"},
           {"{'descr': '<f4", "no end"},
           {"{'descr': '<f4', 'descr': '<f4'}", "comes twice"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", "cut off"},
           {"", "expected '{'"},
       })
    EXPECT_NE(refused(dict).find(expected), std::string::npos) << dict << ": " << refused(dict);
}

TEST(Formats, an_index_names_files_of_its_folder) {
  EXPECT_EQ(parse_index(R"({"weight_map": {"a": "x.safetensors"}})", "f").at("a"), "x.safetensors");
  for (const char* file : {"../x.safetensors", "/etc/passwd", "", "..", "a\\u0000b"})
    EXPECT_THROW(parse_index(std::string(R"({"weight_map": {"a": ")") + file + "\"}}", "f"), UsageError) << file;
  for (const char* text : {"{}", "[]", R"({"weight_map": []})", R"({"weight_map": {"a": 1}})"})
    EXPECT_THROW(parse_index(text, "f"), UsageError);
}

/// The runs of all parts cover the tensor once, and the CRCs of parts are terms of its CRC.
TEST(Formats, parts_cover_the_tensor) {
  std::mt19937 random(7);
  for (int i = 0; i < 500; ++i) {
    Shape shape(random() % 4);
    for (int64_t& extent : shape) extent = random() % 6;
    const int64_t item = int64_t{1} << (random() % 4);
    Shape mesh_shape(1 + random() % 2);
    for (int64_t& workers : mesh_shape) workers = 1 + random() % 3;
    std::vector<PlacementSpec> specs;
    for (size_t dim = 0; dim < mesh_shape.size(); ++dim)
      specs.push_back(shape.empty() || random() % 3 == 0 ? PlacementSpec::replica()
                                                         : PlacementSpec::sharding(static_cast<int>(random() % shape.size())));
    const DTensorStructInfo info({shape, {dl::kUInt, static_cast<uint8_t>(8 * item), 1}}, DeviceMesh(mesh_shape),
                                 Placement(specs));
    std::vector<uint8_t> whole(static_cast<size_t>(element_count(shape) * item)), seen(whole.size());
    for (uint8_t& byte : whole) byte = static_cast<uint8_t>(random());
    uint32_t crc = 0;
    for (int64_t worker = 0; worker < info.device_mesh().size(); ++worker) {
      const Runs runs(info.local(worker), shape, item);
      const Holder holder = holder_of(info, worker);
      ASSERT_GE(holder.count, 1);
      const int64_t begin = runs.part_bytes() * holder.index / holder.count,
                    end = runs.part_bytes() * (holder.index + 1) / holder.count;
      tutti::detail::PartialCrc term;
      int64_t last = -1;
      runs.each(begin, end, [&](const tutti::distributed::Run& run) {
        ASSERT_GT(run.bytes, 0);
        ASSERT_GT(run.in_tensor, last);
        last = run.in_tensor;
        for (int64_t at = run.in_tensor; at < run.in_tensor + run.bytes; ++at) ++seen.at(static_cast<size_t>(at));
        term.add(whole.data() + run.in_tensor, static_cast<size_t>(run.bytes), run.in_tensor);
      });
      crc ^= term.of(std::ssize(whole));
    }
    EXPECT_TRUE(std::ranges::all_of(seen, [](uint8_t times) { return times == 1; })) << to_string(info);
    EXPECT_EQ(crc, crc32_z(0, whole.data(), whole.size())) << to_string(info);
  }
}

class Remains : public testing::Test {
 protected:
  Remains() { fs::create_directories(folder); }
  ~Remains() override { fs::remove_all(folder); }
  void make(const std::string& name) const { std::ofstream(folder / name) << "x"; }
  bool has(const std::string& name) const { return fs::exists(folder / name); }
  const fs::path folder = fs::path(testing::TempDir()) / ("remains" + std::to_string(getpid()));
};

/// Two that write, as workers do: each its own bytes, the last blocks shared.
TEST_F(Remains, of_direct_writes_is_all_that_was_written) {
  using tutti::detail::File;
  const std::string path = (folder / "direct").string();
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    std::vector<char> expected(random() % (12 << 20) + 1);
    for (char& byte : expected) byte = static_cast<char>(random());
    fs::remove(path);
    File::create(path).resize(std::ssize(expected), false);
    const File writers[] = {File::open_to_write(path, true), File::open_to_write(path, true)};
    struct Piece {
      size_t at, bytes;
    };
    std::vector<Piece> pieces[2];
    for (size_t at = 0; at < expected.size();) {
      const size_t most = random() % 3 == 0 ? 6 << 20 : 5000, bytes = std::min(random() % most + 1, expected.size() - at);
      pieces[random() % 4 == 0].push_back({at, bytes});
      at += bytes;
    }
    std::thread workers[2];
    for (size_t i = 0; i < 2; ++i)
      workers[i] = std::thread([&, i] {
        for (const auto [at, bytes] : pieces[i]) writers[i].write(expected.data() + at, bytes, static_cast<int64_t>(at));
        writers[i].sync();
      });
    for (std::thread& worker : workers) worker.join();
    const int can = ::open(path.c_str(), O_RDONLY | O_DIRECT);
    const File files[] = {File::open(path), File::open(path, true)};
    EXPECT_EQ(writers[0].is_direct() && files[1].is_direct(), can >= 0);
    ::close(can);
    for (const File& file : files) {
      std::vector<char> all(expected.size()), some(random() % expected.size());
      file.read(all.data(), all.size(), 0);
      EXPECT_TRUE(all == expected);
      const size_t at = random() % (expected.size() - some.size());
      file.read(some.data(), some.size(), static_cast<int64_t>(at));
      EXPECT_EQ(std::memcmp(some.data(), expected.data() + at, some.size()), 0);
      EXPECT_THROW(file.read(all.data(), all.size(), 1), tutti::SystemError);
    }
  }
}

TEST_F(Remains, only_those_of_saves_that_ended_are_removed) {
  const std::string path = (folder / "m.safetensors").string();
  for (const char* name :
       {"m.safetensors.0123abcd.saving", "m.safetensors.0123abcd.part", "m.safetensors", "m.safetensors.part",
        "m.safetensors.0123abcd", "am.safetensors.0123abcd.part", "m.safetensors.ffffffff.part", "m.safetensors.0123ABCD.part"})
    make(name);
  const tutti::detail::Ledger under_way((folder / "m.safetensors.00000001.saving").string(), 1, 1);
  make("m.safetensors.00000001.part");
  remove_remains(path);
  EXPECT_FALSE(has("m.safetensors.0123abcd.saving") || has("m.safetensors.0123abcd.part"));
  for (const char* name : {"m.safetensors", "m.safetensors.part", "m.safetensors.0123abcd", "am.safetensors.0123abcd.part",
                           "m.safetensors.ffffffff.part", "m.safetensors.0123ABCD.part", "m.safetensors.00000001.saving",
                           "m.safetensors.00000001.part"})
    EXPECT_TRUE(has(name)) << name;
}

TEST_F(Remains, an_empty_ledger_goes_and_one_that_is_just_made_is_made_again) {
  const std::string path = (folder / "m.safetensors").string(), left = "m.safetensors.0123abcd.saving";
  std::ofstream(folder / left).flush();  // its save was killed when it had made the file
  remove_remains(path);
  EXPECT_FALSE(has(left));
  std::atomic<bool> is_over{false};
  std::thread others([&] {
    while (!is_over) remove_remains(path);
  });
  for (int i = 0; i < 2000; ++i) {  // each save has an id of its own
    const tutti::detail::Ledger ledger(path + "." + std::to_string(10000000 + i) + ".saving", 2, 1);
    EXPECT_EQ(ledger.records().size(), 2u);
    fs::remove(ledger.path());
  }
  is_over = true;
  others.join();
}

TEST_F(Remains, files_that_an_index_names_are_not_removed) {
  const std::string path = (folder / "m.safetensors.index.json").string();
  Catalogue tensors;
  tensors["a"].sinfo = {{0}, kFloat32};
  std::ofstream(folder / "m-00001-of-00001.aaaaaaaa.safetensors") << format_safetensors(tensors, {});
  std::ofstream(path) << format_index({{"a", "m-00001-of-00001.aaaaaaaa.safetensors"}}, 0, {});
  for (const char* name :
       {"m-00001-of-00002.bbbbbbbb.safetensors", "m-big-00001-of-00002.bbbbbbbb.safetensors", "m-00001-of-00002.safetensors",
        "m-00001-of-00002.cccccccc.safetensors", "m.safetensors.index.json.bbbbbbbb.saving"})
    make(name);
  EXPECT_EQ(files_of_index(path), std::set<std::string>{(folder / "m-00001-of-00001.aaaaaaaa.safetensors").string()});
  {
    const tutti::detail::Ledger killed(path + ".aaaaaaaa.saving", 2,
                                       1);  // after it had replaced the index of the files "dddddddd"
    killed.set_earlier("dddddddd");
    make("m-00001-of-00001.dddddddd.safetensors");
  }
  remove_remains(path);
  EXPECT_FALSE(has("m-00001-of-00002.bbbbbbbb.safetensors") || has("m-00001-of-00001.dddddddd.safetensors"));
  EXPECT_FALSE(has("m.safetensors.index.json.aaaaaaaa.saving"));
  for (const char* name : {"m-00001-of-00001.aaaaaaaa.safetensors", "m-big-00001-of-00002.bbbbbbbb.safetensors",
                           "m-00001-of-00002.safetensors", "m-00001-of-00002.cccccccc.safetensors"})
    EXPECT_TRUE(has(name)) << name;
  for (const char* name : {"m-00001-of-00002.bbbbbbbb.safetensors", "m.safetensors.index.json.bbbbbbbb.saving"}) make(name);
  std::ofstream(folder / "best.safetensors.index.json") << format_index({{"a", "m-00001-of-00002.bbbbbbbb.safetensors"}}, 0, {});
  remove_remains(path);  // that index had this name
  remove_replaced({(folder / "m-00001-of-00002.bbbbbbbb.safetensors").string()});
  EXPECT_TRUE(has("m-00001-of-00002.bbbbbbbb.safetensors"));
  make("m.safetensors.index.json.bbbbbbbb.saving");
  fs::remove(folder / "best.safetensors.index.json");
  std::ofstream(path) << "{";  // it may name any of them
  remove_remains(path);
  EXPECT_TRUE(has("m-00001-of-00002.bbbbbbbb.safetensors"));
  EXPECT_TRUE(files_of_index(path).empty());
}

}  // namespace

// The format is described at https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html: a magic number, a Python
// dict as text, the elements.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <set>

#include "checkpoint/stored.h"
#include "tutti/error.h"

namespace tutti::distributed {
namespace {

using namespace std::string_view_literals;

constexpr auto kMagic = "\x93NUMPY"sv;
constexpr size_t kNpyAlignment = 64;

constexpr std::pair<const char*, DType> kNpyDTypes[] = {
    {"|b1", kBool},    {"|u1", kUInt8},   {"|i1", kInt8},      {"<u2", kUInt16},     {"<i2", kInt16},
    {"<f2", kFloat16}, {"<u4", kUInt32},  {"<i4", kInt32},     {"<f4", kFloat32},    {"<u8", kUInt64},
    {"<i8", kInt64},   {"<f8", kFloat64}, {"<c8", kComplex64}, {"<c16", kComplex128}};

/// Reads the dict.
class Reader {
 public:
  Reader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  TensorStructInfo read() {
    TensorStructInfo sinfo;
    std::set<std::string> seen;
    expect('{');
    while (!take('}')) {
      const std::string key = string();
      if (!seen.insert(key).second) fail(fmt::format("'{}' comes twice", key));
      expect(':');
      if (key == "descr") sinfo.dtype = dtype();
      else if (key == "shape") sinfo.shape = shape();
      else if (key == "fortran_order") is_fortran_ = truth();
      else fail(fmt::format("'{}' is none of descr, fortran_order and shape", key));
      if (take(',')) continue;
      expect('}');
      break;
    }
    if (seen.size() != 3) fail("expected descr, fortran_order and shape");
    if (is_fortran_ && std::ranges::count_if(sinfo.shape, [](int64_t extent) { return extent > 1; }) > 1 &&
        std::ranges::count(sinfo.shape, 0) == 0)
      fail("its elements are column-major (fortran_order); save it again with numpy.ascontiguousarray");
    skip();
    if (at_ != text_.size()) fail("more text follows the dict");
    return sinfo;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw UsageError(fmt::format("{}: its header can't be read at {}: {}", file_, at_, why));
  }
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(fmt::format("expected '{}'", c));
  }
  std::string string() {
    skip();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') fail("expected a string (tutti reads no records)");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail("the string has no end");
    std::string found(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return found;
  }
  bool truth() {
    skip();
    for (const auto& [text, value] : {std::pair("True"sv, true), {"False"sv, false}})
      if (text_.substr(at_).starts_with(text)) {
        at_ += text.size();
        return value;
      }
    fail("expected True or False");
  }
  DType dtype() {
    std::string name = string();
    if (!name.empty() && name[0] == '=') name[0] = '<';
    for (const auto& [text, found] : kNpyDTypes)
      if (name == text || (text[0] == '|' && name.size() == 3 && name.substr(1) == text + 1)) return found;
    fail(fmt::format("dtype '{}' is not one of those that tutti reads", name));
  }
  Shape shape() {
    Shape found;
    expect('(');
    while (!take(')')) {
      skip();
      int64_t extent = 0;
      size_t digits = 0;
      for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])); ++at_, ++digits)
        if (__builtin_mul_overflow(extent, 10, &extent) || __builtin_add_overflow(extent, text_[at_] - '0', &extent))
          fail("an extent of more than 2^63 - 1");
      if (digits == 0) fail("expected a number");
      found.push_back(extent);
      if (take(',')) continue;
      if (found.size() == 1) fail("expected ',' after the only extent");
      expect(')');
      break;
    }
    return found;
  }

  const std::string_view text_;
  const std::string& file_;
  size_t at_ = 0;
  bool is_fortran_ = false;
};

}  // namespace

Catalogue parse_npy(std::string_view text, int64_t file_bytes, const std::string& file) {
  if (!text.starts_with(kMagic) || text.size() < 10) throw UsageError(fmt::format("{} is no .npy file", file));
  const int version = static_cast<unsigned char>(text[6]);
  if (version < 1 || version > 3) throw UsageError(fmt::format("{}: version {} of .npy, expected 1 to 3", file, version));
  const size_t length_bytes = version == 1 ? 2 : 4, begin = 8 + length_bytes;
  uint32_t length = 0;
  if (text.size() >= begin) std::memcpy(&length, text.data() + 8, length_bytes);
  if (text.size() < begin || text.size() - begin < length)
    throw UsageError(fmt::format("{} is cut off, or its header of {} bytes is longer than those that tutti reads", file, length));
  Stored stored{Reader(text.substr(begin, length), file).read(), file, static_cast<int64_t>(begin + length), {}};
  const int64_t bytes = size_bytes(stored.sinfo.shape, stored.sinfo.dtype);
  if (bytes != file_bytes - stored.begin)
    throw UsageError(fmt::format("{}: {} {} has {} bytes, but {} follow the header; it is {}", file,
                                 to_string(stored.sinfo.dtype), to_string(stored.sinfo.shape), bytes, file_bytes - stored.begin,
                                 bytes > file_bytes - stored.begin ? "cut off" : "damaged"));
  return {{"", std::move(stored)}};
}

std::string format_npy(const TensorStructInfo& sinfo) {
  const char* name = nullptr;
  for (const auto& [text, dtype] : kNpyDTypes)
    if (dtype == sinfo.dtype) name = text;
  if (!name) throw UsageError(fmt::format("save: .npy has no dtype {}; save it as .safetensors", to_string(sinfo.dtype)));
  constexpr size_t kMostAxes = 32;  // numpy's
  if (sinfo.shape.size() > kMostAxes)
    throw UsageError(fmt::format("save: numpy has no arrays of {} axes, {} at most", sinfo.shape.size(), kMostAxes));
  std::string shape;
  for (const int64_t extent : sinfo.shape) shape += fmt::format("{}{}", shape.empty() ? "" : ", ", extent);
  if (sinfo.shape.size() == 1) shape += ",";
  std::string dict = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", name, shape);
  dict.resize((10 + dict.size() + 1 + kNpyAlignment - 1) / kNpyAlignment * kNpyAlignment - 10 - 1, ' ');
  dict += '\n';
  const auto length = static_cast<uint16_t>(dict.size());
  return std::string(kMagic) + "\x01" + std::string(1, '\0') + std::string(reinterpret_cast<const char*>(&length), 2) + dict;
}

}  // namespace tutti::distributed

#include "run/frames.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

namespace tutti::launcher {
namespace {

constexpr char kBegin = '\x1e', kEnd = '\n', kFilling = ' ';
constexpr size_t kRankDigits = 8, kLengthDigits = 3, kHeader = 1 + kRankDigits + 1 + kLengthDigits;
constexpr size_t kMostText = kFrameBytes - kHeader - 1;

struct Header {
  int rank;
  Stream stream;
  size_t length;
};

std::optional<size_t> hex(std::string_view digits) {
  size_t value = 0;
  const char* const all = digits.data() + digits.size();
  const auto [end, error] = std::from_chars(digits.data(), all, value, 16);
  return error == std::errc() && end == all ? std::optional(value) : std::nullopt;
}

std::optional<Header> header_of(std::string_view frame) {
  if (frame.size() < kHeader || frame[0] != kBegin) return std::nullopt;
  const auto rank = hex(frame.substr(1, kRankDigits)), length = hex(frame.substr(kHeader - kLengthDigits, kLengthDigits));
  const int stream = frame[1 + kRankDigits] - '0';
  const bool is_sound = rank && *rank <= INT32_MAX && length && *length <= kMostText && (stream == 1 || stream == 2);
  return is_sound ? std::optional(Header{static_cast<int>(*rank), Stream(stream), *length}) : std::nullopt;
}

}  // namespace

std::string framed(int rank, Stream stream, std::string_view text) {
  std::string frames;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, kMostText);
    text.remove_prefix(part.size());
    const size_t end = frames.size() + kFrameBytes;
    frames += fmt::format("{}{:08x}{}{:03x}{}", kBegin, rank, static_cast<int>(stream), part.size(), part);
    frames.resize(end - 1, kFilling);
    frames += kEnd;
  }
  return frames;
}

void Unframer::feed(std::string_view more) {
  const std::string text = std::exchange(begun_, {}).append(more);
  std::string_view left = text;
  while (!left.empty()) {
    const size_t words = std::min(left.find(kBegin), left.size());
    if (words > 0) sink_(kLauncher, own_, left.substr(0, words));
    left.remove_prefix(words);
    if (left.size() < kHeader) break;
    const auto header = header_of(left);
    if (header && left.size() < kFrameBytes) break;
    if (header) sink_(header->rank, header->stream, left.substr(kHeader, header->length));
    else sink_(kLauncher, own_, left.substr(0, 1));
    left.remove_prefix(header ? kFrameBytes : 1);
  }
  begun_ = left;
}

void Unframer::finish() {
  const std::string cut = std::exchange(begun_, {});
  if (const auto header = header_of(cut))
    sink_(header->rank, header->stream, std::string_view(cut).substr(kHeader, header->length));
  else if (!cut.empty()) sink_(kLauncher, own_, cut);
}

}  // namespace tutti::launcher

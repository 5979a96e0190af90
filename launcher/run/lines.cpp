#include "run/lines.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

namespace tutti::launcher {
namespace {

constexpr size_t kNoTag = 0, kTooShort = std::string_view::npos;
constexpr size_t kLongestRank = 8;

struct Scanner {
  std::string_view left;
  bool ended = false;  // the text, before the tag
  bool take(std::string_view word) {
    const size_t n = std::min(word.size(), left.size());
    if (left.substr(0, n) != word.substr(0, n)) return false;
    ended = n < word.size();
    left.remove_prefix(n);
    return !ended;
  }
  bool take_number(int& value) {
    const size_t digits = std::min(left.find_first_not_of("0123456789"), left.size());
    ended = digits == left.size() && digits <= kLongestRank;
    if (ended || digits == 0 || digits > kLongestRank) return false;
    std::from_chars(left.data(), left.data() + digits, value);
    left.remove_prefix(digits);
    return true;
  }
};

size_t mpirun_tag(std::string_view text, int& rank) {
  int found = 0;
  Scanner head{text};
  if (!head.take("[1,") || !head.take_number(found) || !head.take("]<std")) return head.ended ? kTooShort : kNoTag;
  bool may_come = false;
  for (const std::string_view stream : {"out>:", "err>:", "diag>:"}) {
    Scanner tail{head.left};
    if (tail.take(stream)) {
      rank = found;
      return text.size() - tail.left.size();
    }
    may_come |= tail.ended;
  }
  return may_come ? kTooShort : kNoTag;
}

size_t srun_tag(std::string_view text, int& rank) {
  Scanner scanner{text};
  scanner.left.remove_prefix(std::min(scanner.left.find_first_not_of(' '), scanner.left.size()));
  int found = 0;
  if (scanner.left.empty()) return kTooShort;
  if (!scanner.take_number(found) || !scanner.take(": ")) return scanner.ended ? kTooShort : kNoTag;
  rank = found;
  return text.size() - scanner.left.size();
}

constexpr int kMostSignals = 32;

constexpr char kMark = '\x1e', kFilling = ' ';
constexpr size_t kLeast = 32;           // with a tag of 14 bytes half as much again
constexpr size_t kLongestBegun = 4096;  // then it goes on without its end

std::string_view without_mark(std::string_view line) {
  const size_t mark = line.rfind(kMark);
  return mark == std::string_view::npos || line.find_first_not_of(kFilling, mark + 1) != std::string_view::npos ? line : line.substr(0, mark);
}

}  // namespace

std::string LineMarker::feed(std::string_view text) {
  std::string marked;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    begun_ += text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (end != std::string_view::npos) {
      begun_ += kMark;
      if (begun_.size() < kLeast) begun_.resize(kLeast, kFilling);
      begun_ += '\n';
    }
    if (end != std::string_view::npos || begun_.size() > kLongestBegun) marked += std::exchange(begun_, {});
  }
  return marked;
}

std::string LineMarker::finish() { return begun_.empty() ? "" : feed("\n"); }

std::optional<int> end_of_task(std::string_view line) {
  Scanner scanner{line};
  if (!scanner.take("srun: error: ")) return std::nullopt;
  const size_t task = scanner.left.find(": task");
  const size_t how = task == std::string_view::npos ? task : scanner.left.find(": ", task + 2);
  if (how == std::string_view::npos) return std::nullopt;
  std::string_view what = scanner.left.substr(how + 2);
  constexpr std::string_view kExited = "Exited with exit code ";
  if (what.starts_with(kExited)) {
    what.remove_prefix(kExited.size());
    int code = 0;
    const auto [end, error] = std::from_chars(what.data(), what.data() + what.size(), code);
    return error == std::errc() ? std::optional(code) : std::nullopt;
  }
  for (int number = 1; number < kMostSignals; ++number)
    if (what.starts_with(strsignal(number))) return 128 + number;
  return std::nullopt;
}

std::optional<int> code_of_abort(std::string_view line) {
  Scanner scanner{line};
  int code = 0;
  if (!scanner.take("with errorcode ")) return std::nullopt;
  const auto [end, error] = std::from_chars(scanner.left.data(), scanner.left.data() + scanner.left.size(), code);
  if (error != std::errc() || std::string_view(end, 1) != ".") return std::nullopt;
  constexpr int kCodes = 256;
  return (code % kCodes + kCodes) % kCodes;
}

std::optional<int> code_of_start(std::string_view line) {
  if (!line.starts_with("slurmstepd") || line.find(": error: execve(): ") == std::string_view::npos) return std::nullopt;
  return line.ends_with(strerror(ENOENT)) ? 127 : 126;
}

/// Its length, kNoTag, or kTooShort to tell.
size_t Untangler::read_tag(std::string_view text) {
  if (by_ == Launcher::kSrun) return at_start_ ? srun_tag(text, speaker_) : kNoTag;
  return mpirun_tag(text, speaker_);
}

void Untangler::end_line() {
  std::string& line = lines_[speaker_];
  const std::string_view text = without_mark(line);
  const bool is_filling = !line.empty() && line.find_first_not_of(kFilling) == std::string::npos;
  if (!(is_filling && by_ == Launcher::kMpirun)) sink_(speaker_, text);  // else mpirun's own words came between a line and its filling: lines of ranks have marks
  line.clear();
  speaker_ = kLauncher;
  at_start_ = true;
}

void Untangler::feed(std::string_view more) {
  const std::string text = std::exchange(pending_, {}).append(more);
  for (size_t at = 0; at < text.size();) {
    const std::string_view left = std::string_view(text).substr(at);
    if (left[0] == '[' || at_start_) {
      const size_t tag = read_tag(left);
      if (tag == kTooShort) {
        pending_ = left;
        return;
      }
      at_start_ = false;
      if (tag != kNoTag) {
        at += tag;
        continue;
      }
    }
    if (left[0] == '\n') end_line();
    else lines_[speaker_] += left[0];
    ++at;
  }
}

void Untangler::finish() {
  lines_[speaker_] += std::exchange(pending_, {});
  for (const auto& [rank, line] : lines_)
    if (!line.empty()) sink_(rank, without_mark(line));
  lines_.clear();
}

}  // namespace tutti::launcher

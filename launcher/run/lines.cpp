#include "run/lines.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

namespace tutti::launcher {
namespace {

/// The begin of the text goes if it is that.
bool take(std::string_view& text, std::string_view begin) {
  if (!text.starts_with(begin)) return false;
  text.remove_prefix(begin.size());
  return true;
}

constexpr int kMostSignals = 32;

/// As the system cuts exit codes.
int within_a_byte(int code) {
  constexpr int kCodes = 256;
  return (code % kCodes + kCodes) % kCodes;
}

}  // namespace

void Lines::add(int speaker, std::string_view text) {
  std::string& begun = begun_[speaker];
  for (size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
    begun += text.substr(0, end);
    sink_(speaker, begun);
    begun.clear();
  }
  begun += text;
}

void Lines::finish() {
  for (const auto& [speaker, line] : std::exchange(begun_, {}))
    if (!line.empty()) sink_(speaker, line);
}

std::optional<int> take_label(std::string_view& line) {
  const size_t begin = std::min(line.find_first_not_of(' '), line.size());
  int rank = 0;
  const auto [end, error] = std::from_chars(line.data() + begin, line.data() + line.size(), rank);
  std::string_view left(end, static_cast<size_t>(line.data() + line.size() - end));
  if (error != std::errc() || line[begin] == '-' || !take(left, ": ")) return std::nullopt;
  line = left;
  return rank;
}

std::optional<int> end_of_task(std::string_view line) {
  if (!take(line, "srun: error: ")) return std::nullopt;
  const size_t task = line.find(": task");
  const size_t how = task == std::string_view::npos ? task : line.find(": ", task + 2);
  if (how == std::string_view::npos) return std::nullopt;
  std::string_view what = line.substr(how + 2);
  if (take(what, "Exited with exit code ")) {
    int code = 0;
    const auto [end, error] = std::from_chars(what.data(), what.data() + what.size(), code);
    return error == std::errc() ? std::optional(code) : std::nullopt;
  }
  for (int number = 1; number < kMostSignals; ++number)
    if (what.starts_with(strsignal(number))) return 128 + number;
  return std::nullopt;
}

std::optional<int> code_of_abort(std::string_view line) {
  int code = 0;
  for (const auto& [before, after] :
       {std::pair<std::string_view, std::string_view>("with errorcode ", "."), {"  Errorcode: ", ""}}) {
    std::string_view left = line;
    if (!take(left, before)) continue;
    const char* const all = left.data() + left.size();
    const auto [end, error] = std::from_chars(left.data(), all, code);
    if (error == std::errc() && std::string_view(end, static_cast<size_t>(all - end)).starts_with(after))
      return within_a_byte(code);
  }
  return std::nullopt;
}

bool tells_of_abort(std::string_view line) { return line.starts_with("\"abort\". This may have caused other processes"); }

bool tells_of_lost_host(std::string_view line) { return line.starts_with("PRTE has lost communication with a remote daemon"); }

std::optional<int> code_of_start(std::string_view line) {
  if (!line.starts_with("slurmstepd") || line.find(": error: execve(): ") == std::string_view::npos) return std::nullopt;
  return line.ends_with(strerror(ENOENT)) ? 127 : 126;
}

}  // namespace tutti::launcher

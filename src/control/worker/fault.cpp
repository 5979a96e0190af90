#include "control/worker/fault.h"

#include <fmt/format.h>

#include <charconv>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "core/env.h"
#include "core/settings.h"
#include "tutti/error.h"

namespace tutti::detail {
namespace {

using What = Fault::What;

constexpr std::pair<std::string_view, What> kWhat[] = {{"throw", What::kThrow}, {"delay", What::kDelay}, {"stall", What::kStall},
                                                       {"exit", What::kExit},   {"segv", What::kSegv},   {"kill", What::kKill}};
constexpr std::pair<std::string_view, Fault::Where> kWhere[] = {{"command", Fault::Where::kCommand},
                                                                {"collective", Fault::Where::kCollective},
                                                                {"transfer", Fault::Where::kTransfer},
                                                                {"channel", Fault::Where::kChannel}};

[[noreturn]] void refuse(std::string_view text, std::string_view what) {
  throw UsageError(fmt::format(
      "TUTTI_FAULT: '{}': {}; expected throw, delay, stall, exit, segv or kill, then any of worker=I command=N every=N "
      "in=command, collective, transfer, channel; ms=N code=N; faults are parted by ';'",
      text, what));
}

template <class T, size_t N>
T named(const std::pair<std::string_view, T> (&names)[N], std::string_view name, std::string_view text) {
  for (const auto& [known, value] : names)
    if (known == name) return value;
  refuse(text, fmt::format("unknown word '{}'", name));
}

int64_t number(std::string_view word, std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || value < 0 || value > 1000000000)
    refuse(text, fmt::format("'{}' is no number from 0 to 1000000000", word));
  return value;
}

/// The text up to the separator, which goes as well.
std::string_view next(std::string_view& rest, char separator) {
  const size_t end = std::min(rest.find(separator), rest.size());
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return part;
}

Fault parse(std::string_view text) {
  Fault fault;
  bool has_what = false;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view word = next(rest, ' ');
    if (word.empty()) continue;
    if (!std::exchange(has_what, true)) {
      fault.what = named(kWhat, word, text);
      continue;
    }
    std::string_view value = word;
    const std::string_view key = next(value, '=');
    if (key == "in") fault.where = named(kWhere, value, text);
    else if (key == "worker") fault.worker = static_cast<int>(number(value, text));
    else if (key == "command") fault.command = static_cast<uint64_t>(number(value, text));
    else if (key == "every") fault.every = static_cast<uint64_t>(number(value, text));
    else if (key == "ms") fault.length = std::chrono::milliseconds(number(value, text));
    else if (key == "code") fault.code = static_cast<int>(number(value, text)) & 0xff;
    else refuse(text, fmt::format("unknown word '{}'", word));
  }
  if (!has_what) refuse(text, "it is empty");
  if ((fault.command == 0) == (fault.every == 0)) refuse(text, "expected command=N or every=N, from 1");
  return fault;
}

}  // namespace

std::vector<Fault> parse_faults(std::string_view text) {
  std::vector<Fault> faults;
  while (!text.empty()) faults.push_back(parse(next(text, ';')));
  return faults;
}

void check_faults() try { parse_faults(settings().fault); } catch (const UsageError& error) {
  throw SetUpError(error.what());
}

Faults::Faults(int worker) : faults_(parse_faults(settings().fault)) {
  std::erase_if(faults_, [&](const Fault& fault) { return fault.worker && *fault.worker != worker; });
}

void Faults::strike(Fault::Where where, uint64_t seq, bool may_throw) const {
  for (const Fault& fault : faults_) {
    if (fault.where != where || (fault.every ? seq % fault.every != 0 : seq != fault.command)) continue;
    switch (fault.what) {
      case What::kThrow:
        if (may_throw) throw std::runtime_error(fmt::format("a fault, asked for at command {}", seq));
        break;
      case What::kDelay: std::this_thread::sleep_for(fault.length); break;
      case What::kStall:
        for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
      case What::kExit: std::exit(fault.code);
      case What::kSegv:
        std::signal(SIGSEGV, SIG_DFL);
        std::raise(SIGSEGV);
        break;
      case What::kKill: std::raise(SIGKILL); break;
    }
  }
}

}  // namespace tutti::detail

#include "meet.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <thread>

#include "core/handle.h"
#include "run/process.h"

namespace tutti::launcher {
using namespace detail;
namespace {

using Clock = std::chrono::steady_clock;

/// Of the abstract kind: it goes with the process. Others' cannot be taken for ours: the user is asked for.
sockaddr_un address_of(const std::string& key, socklen_t& size) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = fmt::format("tutti-{}-{}", getuid(), key).substr(0, sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

bool is_mine(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == getuid();
}

bool is_ready(int socket, Clock::time_point until) {
  pollfd waits{socket, POLLIN, 0};
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
  return left > 0 && poll(&waits, 1, static_cast<int>(left)) > 0;
}

/// Until the other side ends; nothing if it does not in time.
std::optional<std::string> read_all(int socket, Clock::time_point until) {
  std::string text;
  for (std::array<char, 4096> part{}; is_ready(socket, until);) {
    const ssize_t n = read(socket, part.data(), part.size());
    if (n == 0) return text;
    if (n < 0 && errno != EINTR) return std::nullopt;
    if (n > 0) text.append(part.data(), static_cast<size_t>(n));
  }
  return std::nullopt;
}

/// "12:hello, world" and more of these.
std::string packed(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += fmt::format("{}:{}", text.size(), text);
  return all;
}
std::optional<std::vector<std::string>> unpacked(std::string_view all) {
  std::vector<std::string> texts;
  while (!all.empty()) {
    size_t size = 0;
    const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), size);
    if (error != std::errc() || end == all.data() + all.size() || *end != ':') return std::nullopt;
    all.remove_prefix(static_cast<size_t>(end - all.data()) + 1);
    if (size > all.size()) return std::nullopt;
    texts.emplace_back(all.substr(0, size));
    all.remove_prefix(size);
  }
  return texts;
}

std::optional<std::vector<std::string>> collect(const std::string& key, int ranks, const std::string& said,
                                                Clock::time_point until) {
  socklen_t size = 0;
  const sockaddr_un address = address_of(key, size);
  Fd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 || listen(listener.get(), ranks) != 0)
    return std::nullopt;
  std::vector<std::string> all(static_cast<size_t>(ranks));
  std::vector<Fd> others;
  all[0] = said;
  for (int left = ranks - 1; left > 0;) {
    if (!is_ready(listener.get(), until)) return std::nullopt;
    Fd other(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (other.get() < 0 || !is_mine(other.get())) continue;
    const auto text = read_all(other.get(), until);
    const auto parts = text ? unpacked(*text) : std::nullopt;
    if (!parts || parts->size() != 2) return std::nullopt;
    const size_t rank = static_cast<size_t>(std::atoi((*parts)[0].c_str()));
    if (rank == 0 || rank >= all.size()) return std::nullopt;
    if (!all[rank].empty()) continue;  // it has come twice
    all[rank] = (*parts)[1];
    others.push_back(std::move(other));
    --left;
  }
  listener.reset();  // whoever has its answer may meet once more
  for (const Fd& other : others) write_all(other.get(), packed(all));
  return all;
}

std::optional<std::vector<std::string>> tell(const std::string& key, int rank, int ranks, const std::string& said,
                                             Clock::time_point until) {
  socklen_t size = 0;
  const sockaddr_un address = address_of(key, size);
  while (Clock::now() < until) {
    const Fd collector(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(collector.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 || !is_mine(collector.get())) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // it has not begun
      continue;
    }
    write_all(collector.get(), packed({std::to_string(rank), said}));
    shutdown(collector.get(), SHUT_WR);
    const auto text = read_all(collector.get(), until);
    auto all = text ? unpacked(*text) : std::nullopt;
    return all && all->size() == static_cast<size_t>(ranks) ? all : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::vector<std::string>> meet(const std::string& key, int rank, int ranks, const std::string& said,
                                             std::chrono::milliseconds patience) {
  const auto until = Clock::now() + patience;
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  auto all = rank == 0 ? collect(key, ranks, said, until) : tell(key, rank, ranks, said, until);
  std::signal(SIGPIPE, before);
  return all;
}

}  // namespace tutti::launcher

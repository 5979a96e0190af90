#include "collective/nccl/ras.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <string_view>
#include <utility>

#include "core/env.h"

namespace tutti::detail::nccl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience(3);
constexpr int kNcclWaits_s = 1;  // for other processes' answers, on each of some legs
constexpr size_t kMostBytes = 32 << 10;

struct Address {
  std::string host, port;
};
Address address() {
  const std::string text = env_string("NCCL_RAS_ADDR").value_or("localhost:28028");
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return {text, "28028"};
  std::string host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);  // IPv6
  return {host, text.substr(colon + 1)};
}

/// A connection that takes no longer than the patience, but for the time to look up a host's name.
class Client {
 public:
  explicit Client(const Address& to) {
    if (to.host.empty() || to.port.empty()) return;
    const addrinfo wanted{.ai_flags = 0,
                          .ai_family = AF_UNSPEC,
                          .ai_socktype = SOCK_STREAM,
                          .ai_protocol = 0,
                          .ai_addrlen = 0,
                          .ai_addr = nullptr,
                          .ai_canonname = nullptr,
                          .ai_next = nullptr};
    addrinfo* found = nullptr;
    if (getaddrinfo(to.host.c_str(), to.port.c_str(), &wanted, &found) != 0) return;
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> freed(found, freeaddrinfo);
    for (const addrinfo* at = found; at && socket_ < 0; at = at->ai_next) {
      socket_ = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
      if (socket_ < 0) continue;
      set_limits();
      if (connect(socket_, at->ai_addr, at->ai_addrlen) == 0) return;
      close(std::exchange(socket_, -1));
    }
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() {
    if (socket_ >= 0) close(socket_);
  }

  bool say(std::string_view line) const {
    return socket_ >= 0 && send(socket_, line.data(), line.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(line.size());
  }
  /// Up to the end of a line, or of all; what has come when the patience ends.
  std::string hear(bool one_line) {
    std::string heard;
    for (char bytes[4096]; heard.size() < kMostBytes && !(one_line && heard.ends_with('\n'));) {
      set_limits();
      const ssize_t n = Clock::now() < end_ ? recv(socket_, bytes, sizeof bytes, 0) : 0;
      if (n < 0 && errno == EINTR) continue;  // a time limit of the socket has signals end it
      if (n <= 0) break;
      heard.append(bytes, static_cast<size_t>(n));
    }
    return heard;
  }

 private:
  void set_limits() const {
    const auto left = std::max(std::chrono::duration_cast<std::chrono::microseconds>(end_ - Clock::now()), kLeast);
    const timeval limit{.tv_sec = left.count() / 1'000'000, .tv_usec = left.count() % 1'000'000};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  }

  static constexpr std::chrono::microseconds kLeast{1000};  // 0 is no limit
  const Clock::time_point end_ = Clock::now() + kPatience;
  int socket_ = -1;
};

}  // namespace

std::string ras_status() {
  const Address at = address();
  Client client(at);
  if (!client.say("CLIENT PROTOCOL 2\n") || !client.hear(true).starts_with("SERVER PROTOCOL")) return {};
  if (!client.say(fmt::format("TIMEOUT {}\n", kNcclWaits_s)) || client.hear(true) != "OK\n") return {};
  if (!client.say("STATUS\n")) return {};
  const std::string text = client.hear(false);
  return text.empty()
             ? text
             : fmt::format(
                   "the NCCL job that listens at {}:{} says (another one on this node may have the port: set NCCL_RAS_ADDR):\n{}",
                   at.host, at.port, text);
}

}  // namespace tutti::detail::nccl

// What NCCL's RAS service says is joined to the hang report. The service here is the test's own.
#include "collective/nccl/ras.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "gpu/standin/control.h"
#include "tutti/tutti.h"

namespace {

using namespace tutti;
using namespace std::chrono_literals;
namespace standin = tutti_test::standin_control;
using Clock = std::chrono::steady_clock;

std::string line_of(int client) {
  std::string line;
  for (char c = 0; c != '\n' && recv(client, &c, 1, 0) == 1;) line += c;
  return line;
}
bool say(int client, const std::string& text) { return send(client, text.data(), text.size(), MSG_NOSIGNAL) > 0; }

/// Answers one client after another, each in a way of its own.
class Service {
 public:
  explicit Service(void (*answer)(int client)) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&at), &size), 0);
    EXPECT_EQ(listen(socket_, 4), 0);
    setenv("NCCL_RAS_ADDR", ("127.0.0.1:" + std::to_string(ntohs(at.sin_port))).c_str(), 1);
    thread_ = std::thread([this, answer] {
      for (int client; (client = accept(socket_, nullptr, nullptr)) >= 0; close(client)) answer(client);
    });
  }
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  ~Service() {
    shutdown(socket_, SHUT_RDWR);
    thread_.join();
    close(socket_);
    unsetenv("NCCL_RAS_ADDR");
  }

 private:
  int socket_;
  std::thread thread_;
};

void answer_well(int client) {
  EXPECT_EQ(line_of(client), "CLIENT PROTOCOL 2\n");
  say(client, "SERVER PROTOCOL 2\n");
  EXPECT_EQ(line_of(client).substr(0, 8), "TIMEOUT ");
  say(client, "OK\n");
  EXPECT_EQ(line_of(client), "STATUS\n");
  say(client, "NCCL version 2.28.9\n");
  say(client, "Communicators... RUNNING\n");
}

TEST(Ras, status_is_read) {
  const Service service(answer_well);
  const std::string text = detail::nccl::ras_status();
  EXPECT_EQ(text.rfind("the NCCL job that listens at 127.0.0.1:", 0), 0u) << text;
  EXPECT_NE(text.find("NCCL_RAS_ADDR):\nNCCL version 2.28.9\nCommunicators... RUNNING\n"), std::string::npos) << text;
}

TEST(Ras, others_say_nothing_within_seconds) {
  for (void (*answer)(int) : {+[](int) {}, +[](int client) { say(client, "HTTP/1.1 400 Bad Request\n"); },
                              +[](int client) {
                                line_of(client);
                                say(client, "SERVER PROTOCOL 2\n");
                                line_of(client);
                                say(client, "ERROR\n");
                              },
                              +[](int client) { line_of(client), line_of(client); },  // silent, until the client has gone
                              +[](int client) {                                       // a little, again and again
                                line_of(client);
                                for (const auto end = Clock::now() + 30s; Clock::now() < end && say(client, "x");)
                                  std::this_thread::sleep_for(100ms);
                              }}) {
    const Service service(answer);
    const auto since = Clock::now();
    EXPECT_EQ(detail::nccl::ras_status(), "");
    EXPECT_LT(Clock::now() - since, 15s);
  }
}

TEST(Ras, nobody_there_is_no_wait) {
  const auto since = Clock::now();
  for (const char* address : {"127.0.0.1:1", "127.0.0.1:none", "[::1]:1", ":", "127.0.0.1:"}) {
    setenv("NCCL_RAS_ADDR", address, 1);
    EXPECT_EQ(detail::nccl::ras_status(), "") << address;
  }
  EXPECT_LT(Clock::now() - since, 2s);
  unsetenv("NCCL_RAS_ADDR");
}

std::atomic<bool> goes_on{false};
std::atomic<int> stuck{0};

TEST(Ras, hang_report_has_it) {
  const Service service(answer_well);
  register_global_func("ras.stuck", [](const Tensor& x) {
    standin::launch(stream(), [] {
      while (!goes_on) std::this_thread::sleep_for(1ms);
      return 0;
    });
    ++stuck;
    Tensor::empty(x.shape(), x.dtype()).copy_from(x);  // waits
  });
  for (const char* ccl : {"nccl", "auto"}) {
    goes_on = false, stuck = 0;
    ThreadedSession session(2);
    session.init_ccl(ccl);
    const DRef x = session.empty({4}, kFloat32);
    session.sync_all();
    session.call(session.get_global_func("ras.stuck"), {x});
    while (stuck < 2) std::this_thread::sleep_for(1ms);
    try {
      session.sync_all(500ms);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const TimeoutError& error) {
      const std::string why = error.what();
      EXPECT_NE(why.find("computes ras.stuck"), std::string::npos) << why;
      EXPECT_NE(why.find("the NCCL job that listens at 127.0.0.1"), std::string::npos) << why;
      EXPECT_NE(why.find("Communicators... RUNNING"), std::string::npos) << why;
    }
    goes_on = true;
    session.sync_all();
    session.shutdown();
  }
}

}  // namespace

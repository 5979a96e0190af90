#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "python/gil.h"
#include "python/refs.h"
#include "tutti/session.h"
#include "tutti/worker.h"

namespace tutti::python {

/// A session as Python's objects hold it.
class PySession {
 public:
  template <class Make>
  explicit PySession(Make make) {
    if (worker::active())
      throw UsageError(
          "a worker function can't make a session, the controller can have several; a script that workers import makes its own "
          "below "
          "`if __name__ == \"__main__\":`");
    close_parked();
    collect_forgotten();
    {
      const WithoutGil without_gil;
      session_.emplace(make());
    }
    about_ = std::make_shared<About>(About{session_->kind(), session_->num_workers()});
    live().insert(this);
  }
  ~PySession();                 ///< shuts down; what fails is told of on sys.stderr
  static bool& all_is_well() {  ///< nobody has missed an error; with the lock
    static bool well = true;
    return well;
  }
  static void close_parked();
  /// The ranks of an MPI job are taken as long as a session of them lives: one that only a cycle of references holds ends now.
  static void collect_forgotten();
  PySession(const PySession&) = delete;
  PySession& operator=(const PySession&) = delete;

  Session& session() {
    if (!session_) throw UsageError("the session has ended with the interpreter");
    return *session_;
  }
  /// Workers that a wait has been given up for get a moment, as in C++; else as long as they take.
  Timeout patience() { return session().timed_out() ? Timeout(std::chrono::seconds(1)) : Timeout(); }
  void end() {
    const WithoutGil without_gil;
    session_.reset();
  }
  /// Nothing is left to shut down, and a call has raised why.
  bool is_lost() const { return !session_ || session_->lost(); }
  const About& about() const { return *about_; }
  Ref ref(DRef made) const { return {std::move(made), about_}; }

  Ref cached(const std::string& name, Where where);  ///< a function, looked up once in a session
  static std::vector<Session>& parked() {
    static auto* sessions = new std::vector<Session>;  // with the lock
    return *sessions;
  }
  static std::set<PySession*>& live() {
    static std::set<PySession*> sessions;  // with the lock
    return sessions;
  }

 private:
  std::optional<Session> session_;
  std::shared_ptr<const About> about_;
  std::map<std::string, Ref> functions_;
};
struct PyThreaded : PySession {
  using PySession::PySession;
};
struct PyProcess : PySession {
  using PySession::PySession;
};
struct PySocket : PySession {
  using PySession::PySession;
};

}  // namespace tutti::python

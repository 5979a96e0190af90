#include "python/py_session.h"

#include <algorithm>

#include "python/errors.h"

namespace tutti::python {

PySession::~PySession() {
  live().erase(this);
  functions_.clear();
  if (worker::active()) {  // the collector ran inside a worker's function, which can't wait for itself
    parked().push_back(*std::exchange(session_, std::nullopt));
    return;
  }
  if (!is_lost() && !session_->timed_out()) try {
      const WithoutGil without_gil;  // workers may need the lock to end
      session_->shutdown();
    } catch (const RemoteError& error) {
      all_is_well() = false;
      log("unreported failure of a session that went out of scope", error);
    } catch (const TransportError& error) {
      all_is_well() = false;
      log("end of a session that went out of scope", error);
    } catch (py::error_already_set& error) {
      put_off(error);
    } catch (...) {  // a fork of the process that this is about
    }
  end();
}

void PySession::close_parked() {
  auto closing = std::exchange(parked(), {});
  const WithoutGil without_gil;
  closing.clear();
}

void PySession::collect_forgotten() {
  const auto takes_ranks = [](const PySession* session) { return session->about().kind == "mpi"; };
  if (std::ranges::any_of(live(), takes_ranks)) py::module_::import("gc").attr("collect")();
}

Ref PySession::cached(const std::string& name, Where where) {
  auto found = functions_.find(name);
  if (found == functions_.end()) found = functions_.emplace(name, ref(session_->get_global_func(name, where))).first;
  return found->second;
}

}  // namespace tutti::python

#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/layout.h"
#include "checkpoint/ledger.h"
#include "control/controller/controller.h"
#include "tutti/checkpoint.h"
#include "tutti/error.h"

namespace tutti::distributed {

/// A save from its begin to its end. What it has made goes with it, unless it has ended well.
struct [[gnu::visibility("hidden")]] Saving::State {
  State(const std::string& path, const std::map<std::string, TensorStructInfo>& tensors, SaveOptions given, int workers);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();
  bool has_ended() const {
    const std::lock_guard lock(mutex);
    return is_done;
  }
  int64_t bytes_written() const;
  void remove_made() noexcept;
  void await_workers();
  void commit();
  void run() noexcept;
  void start() {
    thread = std::thread([this] { run(); });
  }
  void end(std::exception_ptr why) noexcept;
  /// Saves to one path end in the order in which they began: the last one counts.
  static void put_in_order(const std::shared_ptr<State>& state);
  void await_earlier() const;
  /// Nobody waits for it any more. Its files go when the workers, which may not have begun yet, are through with them.
  static void give_up(const std::shared_ptr<State>& state);
  void check_wanted() const {
    if (is_given_up) throw TimeoutError("save: it was given up");
  }

  const SaveOptions options;
  Layout layout;
  std::vector<std::string> names;  ///< of the tensors, as the workers number them
  int64_t total = 0;
  std::vector<std::string> made;  ///< files, the ledger first
  std::shared_ptr<const detail::Ledger> ledger;
  DRef writers;
  std::shared_ptr<detail::Controller> controller;
  std::vector<std::shared_ptr<State>> earlier;                ///< saves to the path that go on
  std::atomic<bool> is_given_up{false}, is_announced{false};  ///< the latter: SaveOptions::begun runs
  bool is_told = false;                                       ///< the failure
  std::thread thread;
  mutable std::mutex mutex;  // of what follows
  std::condition_variable changed;
  bool is_done = false;
  std::exception_ptr failure;
  std::atomic<int64_t> written{0};
};

}  // namespace tutti::distributed

// The controller's side of a save: names and room for the files, the last bytes, and the moment at which they appear.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "checkpoint/file.h"
#include "checkpoint/layout.h"
#include "checkpoint/ledger.h"
#include "checkpoint/runs.h"
#include "checkpoint/save_parts.h"
#include "control/worker/functions_above.h"
#include "core/interpreter.h"
#include "core/settings.h"
#include "distributed/access.h"
#include "tutti/checkpoint.h"
#include "tutti/error.h"

namespace tutti::distributed {
namespace {

using namespace std::chrono_literals;
using detail::File;
using detail::Ledger;
using Clock = std::chrono::steady_clock;

constexpr int64_t kSmallRun = 4096;  // bytes; a file is not written in shorter pieces

/// A tensor as it is written. Partial values are reduced, and one that would be written in small pieces is cut by rows instead.
DTensor to_be_written(const DTensor& tensor, Where where) {
  const DTensorStructInfo& info = tensor.info();
  const TensorStructInfo& whole = info.tensor_sinfo();
  bool is_ready = true;
  for (const PlacementSpec& spec : info.placement().dim_specs()) is_ready &= spec.kind() != PlacementSpecKind::kPartial;
  for (const int64_t worker : info.device_mesh().device_ids()) {
    if (!is_ready) break;
    const Runs runs(info.local(worker), whole.shape, whole.dtype.size_bytes());
    is_ready = runs.length() >= kSmallRun || runs.part_bytes() <= runs.length();
  }
  if (is_ready) return tensor;
  const auto& ids = info.device_mesh().device_ids();
  const auto by_rows = whole.shape.empty() ? PlacementSpec::replica() : PlacementSpec::sharding(0);
  return tensor.redistribute(Placement({by_rows}), DeviceMesh({std::ssize(ids)}, ids), where);
}

}  // namespace

/// A save from its begin to its end. What it has made goes with it, unless it has ended well.
struct Saving::State {
  State(const std::string& path, const std::map<std::string, TensorStructInfo>& tensors, SaveOptions given, int workers);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (thread.joinable()) thread.join();
    remove_made();
  }
  void remove_made() const noexcept {
    std::error_code none;
    for (const std::string& each : made) std::filesystem::remove(each, none);
  }
  void await_workers();
  void commit();
  void run() noexcept;
  void start() {
    thread = std::thread([this] { run(); });
  }

  const SaveOptions options;
  Layout layout;
  std::vector<std::string> names;  ///< of the tensors, as the workers number them
  int64_t total = 0;
  std::vector<std::string> made;  ///< files
  std::optional<Ledger> ledger;
  DRef writers;
  std::shared_ptr<detail::Controller> controller;
  std::thread thread;
  mutable std::mutex mutex;  // of what follows
  std::condition_variable changed;
  bool is_done = false;
  std::exception_ptr failure;
  std::atomic<int64_t> written{0};
};

Saving::State::State(const std::string& path, const std::map<std::string, TensorStructInfo>& tensors, SaveOptions given,
                     int workers)
    : options(std::move(given)), layout(lay_out(detail::absolute_path(path), tensors, options)) {
  const std::string& whole = layout.files.back().path;
  remove_remains(whole);
  for (const auto& [name, sinfo] : tensors) {
    names.push_back(name);
    total += size_bytes(sinfo.shape, sinfo.dtype);
  }
  const std::string ledger_path = fmt::format("{}.{}.saving", whole, layout.id);
  try {
    made.push_back(ledger_path);
    ledger.emplace(ledger_path, workers, names.size());
    for (NewFile& file : layout.files) {
      File part = File::create(file.part);
      made.push_back(file.part);
      part.resize(file.bytes, true);
    }
  } catch (...) {
    remove_made();
    throw;
  }
}

/// Until all have written. What they have written grows meanwhile, or the save has failed.
void Saving::State::await_workers() {
  const std::string as_it_was = fmt::format("{} is as it was", layout.files.back().path);
  const auto patience = std::chrono::seconds(detail::settings().timeout_s);
  auto last_change = Clock::now();
  for (auto pause = 1ms;; pause = std::min<std::chrono::milliseconds>(2 * pause, 50ms)) {
    const bool is_last_look = controller->has_ended();  // workers write to the end before a session ends
    int64_t bytes = 0;
    std::optional<size_t> slow;
    const auto records = ledger->records();
    for (size_t worker = 0; worker < records.size(); ++worker) {
      if (records[worker].state == Ledger::State::kFailed)
        throw SystemError(fmt::format("save: worker {}: {}; {}", worker, records[worker].message, as_it_was));
      if (records[worker].state == Ledger::State::kWriting && !slow) slow = worker;
      bytes += records[worker].bytes_written;
    }
    if (bytes != written.exchange(bytes)) last_change = Clock::now();
    if (!slow) return;
    if (is_last_look)
      throw TransportError(fmt::format("save: the session ended before worker {} had written; {}", *slow, as_it_was));
    if (Clock::now() - last_change > patience)
      throw SystemError(
          fmt::format("save: worker {} has written nothing for {} s (TUTTI_TIMEOUT); {}", *slow, patience.count(), as_it_was));
    std::this_thread::sleep_for(pause);
  }
}

/// The front of each file, and then their names; that which `path` names last.
void Saving::State::commit() {
  const auto crcs = ledger->crcs();
  std::map<std::string, uint32_t> by_name;
  for (size_t i = 0; i < names.size(); ++i) by_name[names[i]] = crcs[i];
  written = total;
  for (NewFile& file : layout.files) {
    for (auto& [name, stored] : file.tensors) stored.crc = by_name.at(name);
    const std::string front = front_of(layout, file, options);
    const File part = File::open_to_write(file.part);
    part.write(front.data(), front.size(), 0);
    part.sync();
  }
  for (const NewFile& file : layout.files) {
    if (&file == &layout.files.back() && layout.files.size() > 1) detail::sync_folder_of(file.path);
    detail::rename_file(file.part, file.path);
    if (&file != &layout.files.back()) made.push_back(file.path);
  }
  made = {ledger->path()};
  detail::sync_folder_of(layout.files.back().path);
  std::error_code none;
  std::filesystem::remove(ledger->path(), none);
  if (layout.kind == FileKind::kIndex) remove_remains(layout.files.back().path);
}

void Saving::State::run() noexcept {
  std::exception_ptr why;
  try {
    await_workers();
    commit();
  } catch (...) {
    why = std::current_exception();
  }
  const std::lock_guard lock(mutex);
  failure = why;
  is_done = true;
  changed.notify_all();
}

bool Saving::is_done() const {
  const std::lock_guard lock(state_->mutex);
  return state_->is_done;
}
int64_t Saving::total_bytes() const { return state_->total; }
int64_t Saving::bytes_written() const { return state_->written; }

void Saving::wait(Timeout timeout, Where where) {
  const auto end = timeout ? Clock::now() + *timeout : Clock::time_point::max();
  for (;;) {
    detail::check_interrupted();
    const auto now = Clock::now();
    const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::min(now, end));
    state_->controller->sync(detail::kAllWorkers, timeout ? Timeout(rest) : Timeout(), where);  // which hears of lost workers
    const detail::WithoutInterpreter without;
    std::unique_lock lock(state_->mutex);
    if (state_->changed.wait_until(lock, std::min(end, now + 500ms), [&] { return state_->is_done; })) break;
    if (Clock::now() >= end)
      throw TimeoutError(fmt::format("save: {} of {} bytes are written after {} ms; the save goes on", state_->written.load(),
                                     state_->total, timeout->count()));
  }
  if (state_->failure) std::rethrow_exception(state_->failure);
}

namespace {

/// The workers begin to write, or have written.
template <class State>
void write_parts(Session& session, const std::map<std::string, DTensor>& tensors, State& state, bool is_async, Timeout timeout,
                 Where where) {
  detail::Controller& controller = Access::controller(session);
  std::map<std::string, SavedTensor> saved;
  for (const NewFile& file : state.layout.files)
    for (const auto& [name, stored] : file.tensors) saved.insert({name, {tensors.at(name).info(), file.part, stored.begin}});
  List arguments{state.ledger->path(), is_async, List()};
  List values;
  std::vector<DTensor> written;  // until the workers have them
  for (auto& [name, tensor] : saved) {
    written.push_back(to_be_written(tensors.at(name), where));
    tensor.info = written.back().info();
    values.push_back(to_values(tensor));
    arguments.push_back(written.back().parts());
  }
  arguments[2] = std::move(values);
  state.writers = controller.call_builtin("save_parts", arguments, where);
  controller.sync(detail::kAllWorkers, timeout, where);
}

}  // namespace

std::shared_ptr<Saving::State> Saving::begin(Session& session, const std::string& path,
                                             const std::map<std::string, DTensor>& tensors, const SaveOptions& options,
                                             bool is_async, Timeout timeout, Where where) {
  detail::Controller& controller = Access::controller(session);
  std::map<std::string, TensorStructInfo> sinfos;
  for (const auto& [name, tensor] : tensors) {
    controller.check(tensor.parts(), "save");
    check_workers(tensor.info().device_mesh(), controller);
    sinfos.emplace(name, tensor.info().tensor_sinfo());
  }
  auto state = std::make_shared<State>(path, sinfos, options, controller.layout().num_workers);
  state->controller = controller.shared_from_this();
  write_parts(session, tensors, *state, is_async, timeout, where);
  return state;
}

Saving save_async(Session& session, const std::string& path, const std::map<std::string, DTensor>& tensors,
                  const SaveOptions& options, Timeout timeout, Where where) {
  auto state = Saving::begin(session, path, tensors, options, true, timeout, where);
  state->start();
  return Saving(std::move(state));
}

void save(Session& session, const std::string& path, const std::map<std::string, DTensor>& tensors, const SaveOptions& options,
          Timeout timeout, Where where) {
  const auto state = Saving::begin(session, path, tensors, options, false, timeout, where);
  state->await_workers();
  state->commit();
}

}  // namespace tutti::distributed

void tutti::detail::register_checkpoint_functions() {
  distributed::register_save_parts();
  distributed::register_load_parts();
}

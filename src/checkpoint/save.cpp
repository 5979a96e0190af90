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
  void remove_made() noexcept;
  void await_workers();
  void commit();
  void run() noexcept;
  void start() {
    thread = std::thread([this] { run(); });
  }
  void end(std::exception_ptr why) noexcept;
  void await_end() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return is_done; });
  }
  /// Saves to one path end in the order in which they began: the last one counts.
  static void put_in_order(const std::shared_ptr<State>& state);

  const SaveOptions options;
  Layout layout;
  std::vector<std::string> names;  ///< of the tensors, as the workers number them
  int64_t total = 0;
  std::vector<std::string> made;  ///< files, the ledger first
  std::optional<Ledger> ledger;
  DRef writers;
  std::shared_ptr<detail::Controller> controller;
  std::shared_ptr<State> before;  ///< an earlier save to the path
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
  if (std::error_code none; std::filesystem::is_directory(whole, none))
    throw UsageError(fmt::format("save: {} is a folder", whole));
  remove_remains(whole);
  for (const auto& [name, sinfo] : tensors) {
    names.push_back(name);
    total += size_bytes(sinfo.shape, sinfo.dtype);
  }
  const std::string ledger_path = fmt::format("{}.{}.saving", whole, layout.id);
  try {
    ledger.emplace(ledger_path, workers, names.size());
    made.push_back(ledger_path);
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

/// The ledger last: it tells that the others are left, if this is killed in the middle.
void Saving::State::remove_made() noexcept {
  std::error_code none;
  for (; !made.empty(); made.pop_back()) std::filesystem::remove(made.back(), none);
}

void Saving::State::put_in_order(const std::shared_ptr<State>& state) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<State>> latest;
  const std::lock_guard lock(mutex);
  std::erase_if(latest, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<State>& last = latest[state->layout.files.back().path];
  state->before = last.lock();
  last = state;
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
  const std::string& path = layout.files.back().path;
  const auto earlier = files_of_index(path);
  if (!earlier.empty()) ledger->set_earlier(id_of_index(earlier));
  for (const NewFile& file : layout.files) {
    const bool is_index = &file == &layout.files.back() && layout.files.size() > 1;
    if (is_index) detail::sync_folder_of(path);  // first the files that it names
    detail::rename_file(file.part, file.path);
    if (&file != &layout.files.back()) made.push_back(file.path);
  }
  made.resize(1);  // the ledger
  try {
    detail::sync_folder_of(path);
  } catch (const SystemError& error) {
    throw SystemError(fmt::format("save: {} is there, but: {}", path, error.what()));
  }
  std::error_code none;
  for (const std::string& file : earlier) std::filesystem::remove(file, none);
  remove_made();
}

void Saving::State::end(std::exception_ptr why) noexcept {
  remove_made();
  ledger.reset();
  before.reset();
  const std::lock_guard lock(mutex);
  failure = std::move(why);
  is_done = true;
  changed.notify_all();
}

void Saving::State::run() noexcept {
  std::exception_ptr why;
  try {
    await_workers();
    if (before) before->await_end();
    commit();
  } catch (...) {
    why = std::current_exception();
  }
  end(std::move(why));
}

bool Saving::is_done() const {
  const std::lock_guard lock(state_->mutex);
  return state_->is_done;
}
int64_t Saving::total_bytes() const { return state_->total; }
int64_t Saving::bytes_written() const { return state_->written; }

void Saving::wait(Timeout timeout, Where where) {
  constexpr auto kLongest = std::chrono::hours(24 * 365);
  const auto end = Clock::now() + std::min<std::chrono::milliseconds>(timeout.value_or(kLongest), kLongest);
  const auto is_over = [this] { return state_->is_done; };
  while (!is_done()) {
    detail::check_interrupted();
    const auto now = Clock::now();
    if (now >= end)
      throw TimeoutError(fmt::format("save: {} of {} bytes are written after {} ms; the save goes on", state_->written.load(),
                                     state_->total, timeout.value_or(kLongest).count()));
    if (!state_->controller->has_ended())  // hears of lost workers
      state_->controller->sync(detail::kAllWorkers, std::chrono::duration_cast<std::chrono::milliseconds>(end - now), where);
    const detail::WithoutInterpreter without;
    std::unique_lock lock(state_->mutex);
    state_->changed.wait_until(lock, std::min(end, now + 500ms), is_over);
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
  kind_of(path);
  detail::Controller& controller = Access::controller(session);
  std::map<std::string, TensorStructInfo> sinfos;
  for (const auto& [name, tensor] : tensors) {
    controller.check(tensor.parts(), "save");
    check_workers(tensor.info().device_mesh(), controller);
    sinfos.emplace(name, tensor.info().tensor_sinfo());
  }
  auto state = std::make_shared<State>(path, sinfos, options, controller.layout().num_workers);
  state->controller = controller.shared_from_this();
  State::put_in_order(state);
  try {
    write_parts(session, tensors, *state, is_async, timeout, where);
  } catch (...) {
    state->end({});
    throw;
  }
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
  state->run();
  if (state->failure) std::rethrow_exception(state->failure);
}

}  // namespace tutti::distributed

void tutti::detail::register_checkpoint_functions() {
  distributed::register_save_parts();
  distributed::register_load_parts();
}

#include "checkpoint/saving.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "checkpoint/file.h"
#include "core/interpreter.h"
#include "core/log.h"
#include "core/settings.h"

namespace tutti::distributed {
namespace {

using namespace std::chrono_literals;
using detail::File;
using detail::Ledger;
using Clock = std::chrono::steady_clock;

std::atomic<bool> is_exiting{false};  // the program ends: nothing waits for workers any more

std::string what(const std::exception_ptr& error) noexcept try {
  std::rethrow_exception(error);
} catch (const std::exception& found) {
  return found.what();
}

}  // namespace

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
    ledger = std::make_shared<const Ledger>(ledger_path, workers, names.size());
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

Saving::State::~State() {
  if (thread.joinable()) thread.join();
  remove_made();
  if (failure && !is_told) log(detail::LogLevel::kError, "a save that nobody waited for has failed: {}", what(failure));
}

/// The ledger last: it tells that the others are left, if this is killed in the middle.
void Saving::State::remove_made() noexcept {
  std::error_code none;
  for (; !made.empty(); made.pop_back()) std::filesystem::remove(made.back(), none);
}

void Saving::State::put_in_order(const std::shared_ptr<State>& state) {
  static std::mutex mutex;
  static std::map<std::string, std::vector<std::weak_ptr<State>>> open;  // in their order
  const std::lock_guard lock(mutex);
  for (auto& [path, saves] : open)
    std::erase_if(saves, [](const std::weak_ptr<State>& each) {
      const auto save = each.lock();
      return !save || save->has_ended();
    });
  std::erase_if(open, [](const auto& entry) { return entry.second.empty(); });
  auto& saves = open[state->layout.files.back().path];
  for (const auto& each : saves)
    if (auto save = each.lock()) state->earlier.push_back(std::move(save));
  saves.push_back(state);
}

void Saving::State::await_earlier() const {
  for (const auto& save : earlier)
    while (!save->has_ended()) {
      check_wanted();
      std::unique_lock lock(save->mutex);
      save->changed.wait_for(lock, 50ms, [&] { return save->is_done; });
    }
}

void Saving::State::give_up(const std::shared_ptr<State>& state) {
  static std::mutex mutex;
  static struct Kept {
    std::vector<std::shared_ptr<State>> states;
    ~Kept() { is_exiting = true; }
  } kept;
  state->is_given_up = state->is_told = true;
  if (!state->thread.joinable()) state->start();
  const std::lock_guard lock(mutex);
  std::erase_if(kept.states, [](const std::shared_ptr<State>& each) { return each->has_ended(); });
  kept.states.push_back(state);
}

int64_t Saving::State::bytes_written() const {
  const auto open = [this] {
    const std::lock_guard lock(mutex);
    return ledger;
  }();
  int64_t bytes = 0;
  if (open) try {
      for (const Ledger::Record& record : open->records()) bytes += record.bytes_written;
    } catch (const SystemError&) {  // it goes at the end
    }
  return std::max<int64_t>(bytes, written);
}

/// Until all have written. What they have written grows meanwhile, or the save has failed.
void Saving::State::await_workers() {
  const std::string as_it_was = fmt::format("{} is as it was", layout.files.back().path);
  const auto patience = std::chrono::seconds(detail::settings().timeout_s);
  auto last_change = Clock::now();
  int64_t last = 0;
  for (auto pause = 1ms;; pause = std::min<std::chrono::milliseconds>(2 * pause, 50ms)) {
    const bool is_last_look = controller->has_ended() || is_exiting;  // workers write to the end before a session ends
    int64_t bytes = 0, syncs = 0;
    std::optional<size_t> slow, failed;
    const auto records = ledger->records();
    for (size_t worker = 0; worker < records.size(); ++worker) {
      if (records[worker].state == Ledger::State::kFailed && !failed) failed = worker;
      if (records[worker].state == Ledger::State::kWriting && !slow) slow = worker;
      bytes += records[worker].bytes_written;
      syncs += records[worker].syncs;
    }
    written = bytes;
    if (bytes + syncs != std::exchange(last, bytes + syncs)) last_change = Clock::now();
    if (!slow) check_wanted();
    if (failed && !is_given_up)
      throw SystemError(fmt::format("save: worker {}: {}; {}", *failed, records[*failed].message, as_it_was));
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
  const auto replaced = files_of_index(path);
  if (!replaced.empty()) ledger->set_earlier(id_of_index(replaced));
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
  remove_replaced(replaced);
  remove_made();
}

void Saving::State::end(std::exception_ptr why) noexcept {
  remove_made();
  earlier.clear();
  const std::lock_guard lock(mutex);
  ledger.reset();
  failure = std::move(why);
  is_done = true;
  changed.notify_all();
}

void Saving::State::run() noexcept {
  std::exception_ptr why;
  try {
    await_workers();
    await_earlier();
    commit();
  } catch (...) {
    why = std::current_exception();
  }
  end(std::move(why));
}

bool Saving::is_done() const { return state_->has_ended(); }
int64_t Saving::total_bytes() const { return state_->total; }
int64_t Saving::bytes_written() const { return state_->bytes_written(); }

void Saving::wait(Timeout timeout, Where where) {
  if (state_->is_announced)
    throw UsageError("Saving::wait inside of SaveOptions::begun: the workers begin when that returns; wait afterwards");
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
  state_->is_told = true;
  if (state_->failure) std::rethrow_exception(state_->failure);
}

}  // namespace tutti::distributed

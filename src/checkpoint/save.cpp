// The controller's side of a save: what the workers are to write where.
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/runs.h"
#include "checkpoint/save_parts.h"
#include "checkpoint/saving.h"
#include "control/worker/functions_above.h"
#include "distributed/access.h"
#include "tutti/checkpoint.h"
#include "tutti/error.h"

namespace tutti::distributed {
namespace {

using namespace std::chrono_literals;
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

/// The workers begin to write, or have written.
template <class State>
void write_parts(Session& session, const std::map<std::string, DTensor>& tensors, State& state, bool is_async, Timeout timeout,
                 Where where) {
  detail::Controller& controller = Access::controller(session);
  std::map<std::string, SavedTensor> saved;
  for (const NewFile& file : state.layout.files)
    for (const auto& [name, stored] : file.tensors) saved.insert({name, {tensors.at(name).info(), file.part, stored.begin}});
  List arguments{state.ledger->path(), is_async, state.options.direct, List()};
  List values;
  std::vector<DTensor> written;  // until the workers have them
  for (auto& [name, tensor] : saved) {
    written.push_back(to_be_written(tensors.at(name), where));
    tensor.info = written.back().info();
    values.push_back(to_values(tensor));
    arguments.push_back(written.back().parts());
  }
  arguments[3] = std::move(values);
  state.writers = controller.call_builtin("save_parts", arguments, where);
  controller.sync(detail::kAllWorkers, timeout, where);
}

}  // namespace

void Saving::announce(const std::shared_ptr<State>& state, const SaveOptions& options) try {
  if (!options.begun) return;
  state->is_announced = true;
  options.begun(Saving(state));
  state->is_announced = false;
} catch (...) {
  state->is_announced = false;
  state->is_told = true;
  state->end(std::current_exception());
  throw;
}

std::shared_ptr<Saving::State> Saving::begin(Session& session, const std::string& path,
                                             const std::map<std::string, DTensor>& tensors, const SaveOptions& options,
                                             bool is_async, Timeout timeout, Where where) {
  kind_of(path);
  detail::Controller& controller = Access::controller(session);
  controller.refuse_to_record("save");
  std::map<std::string, TensorStructInfo> sinfos;
  for (const auto& [name, tensor] : tensors) {
    controller.check(tensor.parts(), "save");
    check_workers(tensor.info().device_mesh(), controller);
    sinfos.emplace(name, tensor.info().tensor_sinfo());
  }
  SaveOptions kept = options;
  kept.begun = {};  // it may own what has this save
  auto state = std::make_shared<State>(path, sinfos, std::move(kept), controller.layout().num_workers);
  state->controller = controller.shared_from_this();
  announce(state, options);
  try {
    write_parts(session, tensors, *state, is_async, timeout, where);
    State::put_in_order(state);  // not before: a hook of on_preemption runs inside of that call, and may save, too
    state->start();
  } catch (const RemoteError&) {  // the workers are through
    state->is_told = true;
    state->end(std::current_exception());
    throw;
  } catch (...) {
    State::give_up(state);
    throw;
  }
  return state;
}

Saving save_async(Session& session, const std::string& path, const std::map<std::string, DTensor>& tensors,
                  const SaveOptions& options, Timeout timeout, Where where) {
  return Saving(Saving::begin(session, path, tensors, options, true, timeout, where));
}

void save(Session& session, const std::string& path, const std::map<std::string, DTensor>& tensors, const SaveOptions& options,
          Timeout timeout, Where where) {
  const auto begin = Clock::now();
  Saving saving(Saving::begin(session, path, tensors, options, false, timeout, where));
  const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
  try {
    saving.wait(timeout ? Timeout(std::max(*timeout - spent, 1ms)) : Timeout(), where);
  } catch (...) {
    if (!saving.is_done()) Saving::State::give_up(saving.state_);
    throw;
  }
}

}  // namespace tutti::distributed

void tutti::detail::register_checkpoint_functions() {
  distributed::register_save_parts();
  distributed::register_load_parts();
  distributed::register_shard_loader();
}

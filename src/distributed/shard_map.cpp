#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "distributed/access.h"
#include "distributed/join.h"
#include "tutti/error.h"
#include "tutti/function.h"
#include "tutti/worker.h"

namespace tutti::distributed {
namespace {

thread_local const ShardContext* current = nullptr;

class Entered {
 public:
  explicit Entered(const ShardContext& context) : before_(std::exchange(current, &context)) {}
  ~Entered() { current = before_; }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  const ShardContext* before_;
};

using Infos = std::vector<std::optional<DTensorStructInfo>>;

Infos to_infos(const List& values) {
  Infos infos;
  for (const Value& each : values) infos.push_back(each.is_none() ? std::nullopt : std::optional(to_info(each)));
  return infos;
}

Value as_tensor(const Value& value) {
  if (const auto* number = std::get_if<double>(&value.data())) return Tensor::full(Shape(), *number);
  if (const auto* number = std::get_if<int64_t>(&value.data())) return Tensor::full(Shape(), *number);
  if (const auto* truth = std::get_if<bool>(&value.data())) return Tensor::full(Shape(), *truth);
  return value;
}

/// What a function returns: a list of one for each entry of `told`; for one also that alone. For none: anything. Numbers become
/// tensors without axes. `told`: what the results must fit, where it is known.
Value checked_result(const Value& result, const Infos& told, const std::string& function) {
  if (told.empty()) return result;
  const auto* list = std::get_if<List>(&result.data());
  if (told.size() > 1 ? !list || list->size() != told.size() : list && list->size() != 1)
    throw UsageError(fmt::format("{}: it has returned {} on worker {}, expected {}, one for each of out_placements", function,
                                 list ? fmt::format("a list of {}", list->size()) : to_string(result), worker::id(),
                                 told.size() > 1 ? fmt::format("a list of {} tensors", told.size()) : "one tensor"));
  List results;
  for (size_t i = 0; i < told.size(); ++i) {
    results.push_back(as_tensor(list ? (*list)[i] : result));
    if (results.back().kind() != Value::Kind::kTensor)
      throw UsageError(fmt::format("{}: it has returned {} on worker {}, expected a tensor", function, to_string(results.back()),
                                   worker::id()));
    if (told[i]) checked_part(results.back(), *told[i], function);
  }
  return results.size() == 1 ? results.front() : Value(std::move(results));
}

/// runtime.disco.shard_function: `function` with what it may ask about its place. `args`, `results`: DTensorStructInfos, or
/// None.
Function shard_function(const Function& function, const List& mesh_values, const List& args, const List& results) {
  ShardContext context{to_mesh(mesh_values), {}, {}};
  const auto coordinate = context.mesh.coordinate(worker::id());
  if (!coordinate) return Function(function.name(), [](Args) { return Value(); }, {});
  context.coordinate = *coordinate;
  context.args = to_infos(args);
  const auto call = [function, context, told = to_infos(results)](Args values) {
    if (values.size() != context.args.size())
      throw UsageError(fmt::format("{}: {} arguments, expected {}", function.name(), values.size(), context.args.size()));
    for (size_t i = 0; i < values.size(); ++i)
      if (context.args[i]) checked_part(values[i], *context.args[i]);
    const Entered entered(context);
    return checked_result(function(values), told, function.name());
  };
  return Function(function.name(), call, {});
}

/// runtime.disco.map_parts: name, DTensorStructInfo of the result, arguments.
Value map_part(Args values) {
  const DTensorStructInfo info = to_info(values[1]);
  if (!info.device_mesh().coordinate(worker::id())) return {};
  const auto name = values[0].as<std::string>();
  return checked_result(get_global_func(name)(values.subspan(2)), {info}, name);
}

/// runtime.disco.shard_item: one of several results; None on workers that are not in the mesh.
Value shard_item(const Value& results, int index) {
  if (results.is_none()) return {};
  return results.as<List>().at(static_cast<size_t>(index));
}

}  // namespace

Block ShardContext::local(size_t arg) const {
  if (arg >= args.size() || !args[arg])
    throw UsageError(fmt::format("shard_context: argument {} of {} is no DTensor; they count from 0", arg, args.size()));
  return args[arg]->local(worker::id());
}
Comm ShardContext::comm(int dim) const { return worker::comm(mesh.peers(worker::id(), dim)); }
Comm ShardContext::comm(std::string_view name) const { return comm(mesh.dim(name)); }

const ShardContext& shard_context() {
  if (!current) throw UsageError("shard_context: this thread runs no function that a shard_map calls");
  return *current;
}

struct ShardMap::State {
  DRef func;
  DeviceMesh mesh;
  std::vector<std::optional<Placement>> in_placements;
  std::vector<Placement> out_placements;
  std::map<std::string, DRef> functions;  ///< by what the arguments and results are

  detail::Controller& controller() const { return Access::controller(func, "shard_map"); }
  /// `args`, `results`: DTensorStructInfos, or None.
  DRef function_for(const std::string& key, const List& args, const List& results, Where where) {
    constexpr size_t kMost = 64;
    if (const auto found = functions.find(key); found != functions.end()) return found->second;
    DRef made = controller().call_builtin_at_once("shard_function", List{func, to_values(mesh), args, results}, where);
    if (functions.size() >= kMost) functions.clear();
    return functions[key] = std::move(made);
  }
  DRef call(const std::vector<Argument>& args, const std::vector<DTensorStructInfo>& told, Where where);
};

ShardMap::ShardMap(const DRef& func, DeviceMesh mesh, std::vector<std::optional<Placement>> in_placements,
                   std::vector<Placement> out_placements)
    : state_(std::make_shared<State>(State{func, std::move(mesh), std::move(in_placements), std::move(out_placements), {}})) {
  check_workers(state_->mesh, state_->controller());
  for (size_t i = 0; i < state_->in_placements.size(); ++i)
    if (state_->in_placements[i])
      check_entries(*state_->in_placements[i], state_->mesh, fmt::format("shard_map: in_placements[{}]", i));
  for (size_t i = 0; i < state_->out_placements.size(); ++i)
    check_entries(state_->out_placements[i], state_->mesh, fmt::format("shard_map: out_placements[{}]", i));
}

const DeviceMesh& ShardMap::mesh() const { return state_->mesh; }

DRef ShardMap::State::call(const std::vector<Argument>& args, const std::vector<DTensorStructInfo>& told, Where where) {
  const auto& placements = in_placements;
  if (args.size() != placements.size())
    throw UsageError(
        fmt::format("shard_map: {} arguments, but in_placements has {} entries; give one for each, nothing (None) for "
                    "what is no DTensor",
                    args.size(), placements.size()));
  for (size_t i = 0; i < args.size(); ++i)
    if (std::holds_alternative<DTensor>(args[i]) != placements[i].has_value())
      throw UsageError(fmt::format("shard_map: argument {} is {} DTensor, but in_placements[{}] is {}", i,
                                   placements[i] ? "no" : "a", i,
                                   placements[i] ? fmt::format("'{}'", to_string(*placements[i])) : "nothing (None)"));
  List values, infos, results(out_placements.size());
  std::string key;
  std::vector<DTensor> kept;  // until the call has been issued
  for (size_t i = 0; i < args.size(); ++i) {
    if (const auto* value = std::get_if<Value>(&args[i])) {
      values.push_back(*value);
      infos.emplace_back();
      key += "-\n";
      continue;
    }
    const auto& given = std::get<DTensor>(args[i]);
    const DTensorStructInfo& info = given.info();
    const bool lies_so = info.device_mesh() == mesh && info.placement() == *placements[i];
    kept.push_back(lies_so ? given : given.redistribute(*placements[i], mesh, where));
    values.push_back(kept.back().parts());
    infos.push_back(to_values(kept.back().info()));
    key += to_string(kept.back().info()) + "\n";
  }
  for (size_t i = 0; i < told.size(); ++i) {
    results[i] = to_values(told[i]);
    key += to_string(told[i]) + "\n";
  }
  return controller().call(function_for(key, infos, results, where), values, where);
}

DRef ShardMap::call(const std::vector<Argument>& args, Where where) const { return state_->call(args, {}, where); }

std::vector<DTensor> ShardMap::operator()(const std::vector<Argument>& args, const std::vector<TensorStructInfo>& out_sinfos,
                                          Timeout timeout, Where where) const {
  const auto& placements = state_->out_placements;
  const bool is_told = !out_sinfos.empty();
  if (!is_told) state_->controller().refuse_to_record("shard_map without out_sinfos");
  if (is_told && out_sinfos.size() != placements.size())
    throw UsageError(fmt::format("shard_map: out_sinfos has {} entries, but out_placements has {}; give one for each",
                                 out_sinfos.size(), placements.size()));
  std::vector<DTensorStructInfo> told;
  for (size_t i = 0; i < out_sinfos.size(); ++i) told.emplace_back(out_sinfos[i], state_->mesh, placements[i]);
  const DRef result = state_->call(args, told, where);
  std::vector<DRef> parts, joined;
  const int count = static_cast<int>(placements.size());
  for (int i = 0; i < count; ++i) {
    if (count == 1) parts.push_back(result);
    else parts.push_back(state_->controller().call_builtin("shard_item", List{result, i}, where));
    if (!is_told) joined.push_back(issue_join(parts.back(), state_->mesh, placements[static_cast<size_t>(i)], where));
  }
  try {
    for (const DRef& each : joined) told.push_back(joined_info(each, state_->mesh, timeout, where));
  } catch (...) {
    state_->functions.clear();  // the failure may have taken some
    throw;
  }
  std::vector<DTensor> tensors;
  for (size_t i = 0; i < parts.size(); ++i) tensors.emplace_back(parts[i], told[i]);
  return tensors;
}

DTensor map_parts(const std::string& function, const std::vector<ShardMap::Argument>& args, const DTensorStructInfo& info,
                  Where where) {
  List values{function, to_values(info)};
  const DTensor* first = nullptr;
  for (const ShardMap::Argument& arg : args) {
    const auto* tensor = std::get_if<DTensor>(&arg);
    values.push_back(tensor ? Value(tensor->parts()) : std::get<Value>(arg));
    if (!tensor) continue;
    if (!first) first = tensor;
    if (tensor->info().device_mesh() != info.device_mesh())
      throw UsageError(fmt::format("{}: an argument lies on {}, the result is to lie on {}; redistribute one of them", function,
                                   to_string(tensor->info().device_mesh()), to_string(info.device_mesh())));
  }
  if (!first) throw UsageError(fmt::format("{}: no argument is a DTensor", function));
  return {Access::controller(first->parts(), "map_parts").call_builtin("map_parts", values, where), info};
}

void register_shard_map() {
  register_global_func("runtime.disco.map_parts", map_part, {.override_existing = true});
  register_global_func("runtime.disco.shard_function", shard_function, {.override_existing = true});
  register_global_func("runtime.disco.shard_item", shard_item, {.override_existing = true});
}

}  // namespace tutti::distributed

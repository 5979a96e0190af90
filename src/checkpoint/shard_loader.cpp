// Disco's ShardLoader: parameters of models that MLC and TVM have converted, in the files that a tensor-cache.json lists.
#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/file.h"
#include "checkpoint/json.h"
#include "checkpoint/save_parts.h"
#include "tutti/error.h"
#include "tutti/function.h"
#include "tutti/worker.h"

namespace tutti::distributed {
namespace {

using nlohmann::json;

/// A function(parameter, numbers ..., out), which writes what all workers get, one part after another, or a step towards that.
struct ShardFunction {
  Function function;
  TensorStructInfo out;
  std::vector<int64_t> numbers;
};

struct Parameter {
  std::string name, file;
  TensorStructInfo sinfo;
  int64_t begin = 0;      ///< of its bytes in the file
  bool is_short = false;  ///< the file has the upper halves of float32
  std::vector<ShardFunction> functions;
};

const json& member(const json& object, const char* name, const std::string& what) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  if (!object.is_object() || found == object.end()) throw UsageError(fmt::format("{}: expected '{}'", what, name));
  return *found;
}

std::string to_string_value(const json& value, const std::string& what) {
  if (!value.is_string()) throw UsageError(fmt::format("{}: expected a string, got {}", what, shown(value)));
  return value.get<std::string>();
}

TensorStructInfo to_sinfo(const json& shape, const json& dtype, const std::string& what) {
  TensorStructInfo sinfo;
  if (!shape.is_array()) throw UsageError(fmt::format("{}: expected a list as shape, got {}", what, shown(shape)));
  for (const json& extent : shape) sinfo.shape.push_back(to_number(extent, what + ": shape"));
  sinfo.dtype = parse_dtype(to_string_value(dtype, what + ": dtype"));
  size_bytes(sinfo.shape, sinfo.dtype);
  return sinfo;
}

const json& list_of(const json& value, const std::string& what) {
  if (!value.is_array()) throw UsageError(fmt::format("{}: expected a list, got {}", what, shown(value)));
  return value;
}

/// That of the module, or a registered one.
Function find_function(const Value& module, const std::string& name) {
  if (!module.is_none()) try {
      const Value found = get_global_func("runtime.disco.module_get_function")(List{module, name});
      if (!found.is_none()) return found.as<Function>();
    } catch (const UsageError&) {  // it has none of this name
    }
  return get_global_func(name);
}

class ShardLoader {
 public:
  ShardLoader(const std::string& path, const std::string& cache, std::string shard_info, const Value& module) {
    if (shard_info.empty() && !module.is_none()) shard_info = find_function(module, "get_shard_info")({}).as<std::string>();
    const json shards = parse_object(shard_info.empty() ? "{}" : shard_info, "shard_info"), files = parse_object(cache, path);
    for (const json& file : list_of(member(files, "records", path), path + ": records")) add_file(path, file, shards, module);
  }
  size_t count() const { return parameters_.size(); }
  const Parameter& at(int64_t index) const {
    if (index < 0 || index >= std::ssize(parameters_))
      throw UsageError(fmt::format("parameter {} of {}", index, parameters_.size()));
    return parameters_[static_cast<size_t>(index)];
  }
  const Parameter& named(const std::string& name) const {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) throw UsageError(fmt::format("no parameter is named '{}'", name));
    return parameters_[found->second];
  }

  /// This worker's part of it, or all of it if it has no shard functions. Worker 0 reads; all take part.
  static Tensor load(const Parameter& parameter) {
    const Comm world = worker::world();
    if (parameter.functions.empty()) {
      Tensor all = worker::id() == 0 ? read(parameter) : empty(parameter.sinfo);
      world.broadcast(all, all);
      return all;
    }
    TensorStructInfo part = parameter.functions.back().out;
    if (part.shape.empty() || part.shape.front() != worker::count())
      throw UsageError(fmt::format("parameter '{}' is cut into a tensor of shape {}, expected {} parts, one for each worker",
                                   parameter.name, to_string(part.shape), worker::count()));
    part.shape.erase(part.shape.begin());
    Tensor mine = empty(part);
    Tensor parts;
    if (worker::id() == 0) {
      parts = read(parameter);
      for (const ShardFunction& step : parameter.functions) parts = apply(step, parts);
    }
    world.scatter(parts, mine);
    return mine;
  }
  /// All of it, on this worker's device.
  static Tensor read(const Parameter& parameter) {
    const detail::File file = detail::File::open(parameter.file);
    Tensor host = Tensor::empty(parameter.sinfo.shape, parameter.sinfo.dtype);
    if (parameter.is_short) {
      std::vector<uint16_t> halves(static_cast<size_t>(host.element_count()));
      file.read(halves.data(), 2 * halves.size(), parameter.begin);
      auto* to = static_cast<uint32_t*>(host.data());
      for (size_t i = 0; i < halves.size(); ++i) to[i] = uint32_t{halves[i]} << 16;
    } else {
      file.read(host.data(), static_cast<size_t>(host.size_bytes()), parameter.begin);
    }
    if (worker::device().type == dl::kCPU) return host;
    Tensor on_device = empty(parameter.sinfo);
    on_device.copy_from(host);
    return on_device;
  }
  static Tensor empty(const TensorStructInfo& sinfo) { return Tensor::empty(sinfo.shape, sinfo.dtype, worker::device()); }

 private:
  void add_file(const std::string& path, const json& file, const json& shards, const Value& module) {
    const std::string name = to_string_value(member(file, "dataPath", path), path + ": dataPath");
    if (name.empty() || name == ".." || name.find_first_of(std::string_view("/\0", 2)) != std::string::npos)
      throw UsageError(fmt::format("{}: dataPath: expected the name of a file in the same folder, got '{}'", path, name));
    const int64_t file_bytes = to_number(member(file, "nbytes", path), path + ": nbytes");
    for (const json& record : list_of(member(file, "records", path), path + ": records")) {
      Parameter parameter;
      parameter.name = to_string_value(member(record, "name", path), path + ": name");
      const std::string what = fmt::format("{}: parameter '{}'", path, parameter.name);
      parameter.file = (std::filesystem::path(path).parent_path() / name).string();
      parameter.sinfo = to_sinfo(member(record, "shape", what), member(record, "dtype", what), what);
      const std::string format = to_string_value(member(record, "format", what), what + ": format");
      parameter.is_short = format == "f32-to-bf16" && parameter.sinfo.dtype == kFloat32;
      if (format != "raw" && format != "f32-to-bf16")
        throw UsageError(fmt::format("{}: format '{}', expected raw or f32-to-bf16", what, format));
      parameter.begin = to_number(member(record, "byteOffset", what), what + ": byteOffset");
      const int64_t bytes = to_number(member(record, "nbytes", what), what + ": nbytes"),
                    expected = size_bytes(parameter.sinfo.shape, parameter.sinfo.dtype) / (parameter.is_short ? 2 : 1);
      if (bytes != expected || bytes > file_bytes || parameter.begin > file_bytes - bytes)
        throw UsageError(fmt::format("{}: {} bytes from byte {} of {}, which has {}; expected {}", what, bytes, parameter.begin,
                                     name, file_bytes, expected));
      if (const auto steps = shards.find(parameter.name); steps != shards.end())
        for (const json& step : list_of(*steps, "shard_info: " + parameter.name))
          parameter.functions.push_back(to_function(step, "shard_info: " + parameter.name, module));
      by_name_[parameter.name] = parameters_.size();
      parameters_.push_back(std::move(parameter));
    }
  }
  /// [name, [shape, dtype], number, ...]
  static ShardFunction to_function(const json& step, const std::string& what, const Value& module) {
    if (!step.is_array() || step.size() < 2 || !step[1].is_array() || step[1].size() != 2)
      throw UsageError(fmt::format("{}: expected [function, [shape, dtype], number, ...]", what));
    ShardFunction function{find_function(module, to_string_value(step[0], what)), to_sinfo(step[1][0], step[1][1], what), {}};
    for (size_t i = 2; i < step.size(); ++i) {
      if (!step[i].is_number_integer())
        throw UsageError(fmt::format("{}: expected a whole number, got {}", what, shown(step[i])));
      function.numbers.push_back(step[i].get<int64_t>());
    }
    return function;
  }
  static Tensor apply(const ShardFunction& step, const Tensor& from) {
    Tensor to = empty(step.out);
    List args{from};
    args.insert(args.end(), step.numbers.begin(), step.numbers.end());
    args.emplace_back(to);
    step.function(args);
    return to;
  }

  std::vector<Parameter> parameters_;
  std::map<std::string, size_t> by_name_;
};

using Loader = std::shared_ptr<ShardLoader>;

/// A Shape of one number, as TVM has it, or the number.
int64_t to_index(const Value& index) {
  const auto* shape = std::get_if<Shape>(&index.data());
  if (shape && shape->size() == 1) return shape->front();
  if (index.kind() == Value::Kind::kInt) return index.as<int64_t>();
  throw UsageError(fmt::format("the parameter's index: expected a Shape of one number, got {}", to_string(index)));
}

/// Of "param_7_shard-2-of-4": 2 and 4.
std::optional<std::pair<int, int>> shard_in(const std::string& name) {
  constexpr std::string_view kShard = "_shard-", kOf = "-of-";
  const size_t of = name.rfind(kOf), shard = of == std::string::npos ? of : name.rfind(kShard, of);
  if (shard == std::string::npos) return std::nullopt;
  int index = 0, count = 0;
  const char *begin = name.data(), *end = begin + name.size();
  const auto first = std::from_chars(begin + shard + kShard.size(), begin + of, index);
  const auto last = std::from_chars(begin + of + kOf.size(), end, count);
  if (first.ec != std::errc() || first.ptr != begin + of || last.ec != std::errc() || last.ptr != end) return std::nullopt;
  return std::pair(index, count);
}

Value make_loader(const std::string& path, const std::string& cache, const Value& shard_info, const Value& module) {
  return std::make_shared<ShardLoader>(path, cache, shard_info.is_none() ? "" : shard_info.as<std::string>(), module);
}

Tensor load_one(const Loader& loader, const Value& index) { return ShardLoader::load(loader->at(to_index(index))); }

List load_all(const Loader& loader) {
  List all;
  for (size_t i = 0; i < loader->count(); ++i) all.emplace_back(ShardLoader::load(loader->named(fmt::format("param_{}", i))));
  return all;
}

/// Of the parameters, which are listed worker by worker, those of this one.
Tensor load_presharded(const Loader& loader, const Value& index) {
  const int64_t each = static_cast<int64_t>(loader->count()) / worker::count(), which = to_index(index);
  if (which < 0 || which >= each) throw UsageError(fmt::format("parameter {} of {} for each worker", which, each));
  const Parameter& parameter = loader->at(worker::id() * each + which);
  if (const auto shard = shard_in(parameter.name); shard != std::pair(worker::id() + 1, worker::count()))
    throw UsageError(fmt::format("parameter '{}' is not shard {} of {}, which worker {} was to load", parameter.name,
                                 worker::id() + 1, worker::count(), worker::id()));
  return ShardLoader::read(parameter);
}

List load_all_presharded(const Loader& loader) {
  List all;
  for (size_t i = 0; i < loader->count() / static_cast<size_t>(worker::count()); ++i)
    all.emplace_back(
        ShardLoader::read(loader->named(fmt::format("param_{}_shard-{}-of-{}", i, worker::id() + 1, worker::count()))));
  return all;
}

/// On the others: a tensor of the same shape, uninitialised.
Tensor load_on_worker_0(const Loader& loader, int64_t index) {
  const Parameter& parameter = loader->named(fmt::format("param_{}", index));
  return worker::id() == 0 ? ShardLoader::read(parameter) : ShardLoader::empty(parameter.sinfo);
}

}  // namespace

void register_shard_loader() {
  const RegisterOptions again{.override_existing = true};
  register_global_func("runtime.disco.ShardLoader", make_loader, again);
  register_global_func("runtime.disco.ShardLoaderLoad", load_one, again);
  register_global_func("runtime.disco.ShardLoaderLoadAll", load_all, again);
  register_global_func("runtime.disco.ShardLoaderLoadPresharded", load_presharded, again);
  register_global_func("runtime.disco.ShardLoaderLoadAllPresharded", load_all_presharded, again);
  register_global_func("runtime.disco.ShardLoaderLoadParamOnWorker0", load_on_worker_0, again);
}

}  // namespace tutti::distributed

#include "tutti/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/printable.h"

namespace tutti {
using namespace detail;

namespace detail {

void throw_wrong_type(const char* expected, const Value& got) {
  throw UsageError(fmt::format("expected {}, got {}", expected, to_string(got)));
}
void throw_out_of_range(int64_t least, uint64_t most, int64_t got) {
  throw UsageError(fmt::format("expected an int from {} to {}, got {}", least, most, got));
}

}  // namespace detail

Dict::Dict(List keys, List values) : keys_(std::move(keys)), values_(std::move(values)) {
  if (keys_.size() != values_.size())
    throw UsageError(fmt::format("a dict of {} keys and {} values: expected as many", keys_.size(), values_.size()));
}

void Dict::set(Value key, Value value) {
  if (const Value* there = find(key)) {
    values_[static_cast<size_t>(there - values_.data())] = std::move(value);
    return;
  }
  keys_.push_back(std::move(key));
  values_.push_back(std::move(value));
}

const Value* Dict::find(const Value& key) const {
  const auto found = std::ranges::find(keys_, key);
  return found == keys_.end() ? nullptr : &values_[static_cast<size_t>(found - keys_.begin())];
}

size_t Dict::size() const { return keys_.size(); }

bool Dict::operator==(const Dict& other) const {
  if (size() != other.size()) return false;
  for (size_t i = 0; i < size(); ++i) {
    const Value* theirs = keys_[i] == other.keys_[i] ? &other.values_[i] : other.find(keys_[i]);
    if (!theirs || !(*theirs == values_[i])) return false;
  }
  return true;
}

void Value::throw_too_large() { throw UsageError("an integer above 2^63-1 cannot be a value"); }

const char* Value::type_name() const {
  switch (kind()) {
    case Kind::kNone: return "None";
    case Kind::kBool: return "bool";
    case Kind::kInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kStr: return "str";
    case Kind::kBytes: return "bytes";
    case Kind::kShape: return "shape";
    case Kind::kDType: return "dtype";
    case Kind::kDevice: return "device";
    case Kind::kTensor: return "Tensor";
    case Kind::kList: return "list";
    case Kind::kFunction: return "function";
    case Kind::kOpaque: return "opaque object";
    case Kind::kRegister: return "DRef";
    case Kind::kDict: return "dict";
  }
  return "?";
}

bool Value::operator==(const Value& other) const {
  if (kind() != other.kind()) return false;
  return std::visit(
      [&](const auto& a) {
        using T = std::decay_t<decltype(a)>;
        const auto& b = std::get<T>(other.data_);
        if constexpr (std::same_as<T, Tensor>) {
          if (!a || !b) return !a && !b;
          if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
          if (a.device().type != dl::kCPU || b.device().type != dl::kCPU) return a.device() == b.device() && a.data() == b.data();
          Tensor x = a.contiguous(), y = b.contiguous();
          return x.size_bytes() == 0 || std::memcmp(x.data(), y.data(), static_cast<size_t>(x.size_bytes())) == 0;
        } else if constexpr (std::same_as<T, Function>) {
          return a.name() == b.name();
        } else if constexpr (std::same_as<T, Opaque>) {
          return a.object == b.object || (a.address && a.address == b.address && a.type_name == b.type_name);
        } else {
          return a == b;
        }
      },
      data_);
}

std::string to_string(const Value& value) {
  using Kind = Value::Kind;
  const auto& data = value.data();
  switch (value.kind()) {
    case Kind::kNone: return "None";
    case Kind::kBool: return std::get<bool>(data) ? "bool true" : "bool false";
    case Kind::kInt: return fmt::format("int {}", std::get<int64_t>(data));
    case Kind::kFloat: return fmt::format("float {}", std::get<double>(data));
    case Kind::kStr: {
      const auto& text = std::get<std::string>(data);
      return fmt::format("str '{}{}'", printable(text.substr(0, 40)), text.size() <= 40 ? "" : "...");
    }
    case Kind::kBytes: return fmt::format("bytes[{}]", std::get<Bytes>(data).size());
    case Kind::kShape: return "shape " + to_string(std::get<Shape>(data));
    case Kind::kDType: return "dtype " + to_string(std::get<DType>(data));
    case Kind::kDevice: return "device " + to_string(std::get<Device>(data));
    case Kind::kTensor: {
      const auto& t = std::get<Tensor>(data);
      return t ? fmt::format("Tensor {} {}", to_string(t.dtype()), to_string(t.shape())) : "empty Tensor";
    }
    case Kind::kList: return fmt::format("list of {}", std::get<List>(data).size());
    case Kind::kFunction: return fmt::format("function {}", printable(std::get<Function>(data).name()));
    case Kind::kOpaque: return fmt::format("opaque object {}", std::get<Opaque>(data).type_name);
    case Kind::kRegister: return fmt::format("DRef(reg={})", std::get<RegisterRef>(data).id);
    case Kind::kDict: return fmt::format("dict of {}", std::get<Dict>(data).size());
  }
  return "?";
}

}  // namespace tutti

#include "core/wire.h"

#include <fmt/format.h>

#include "core/items.h"

namespace tutti::detail {
namespace {

constexpr int kMaxDepth = 64;  // of nested lists and dicts

void encode_tensor(Writer& out, const Tensor& tensor) {
  const Tensor dense = tensor.contiguous();
  out.put(dense.dtype());
  out.list(dense.shape());
  out.put(static_cast<uint64_t>(dense.size_bytes()));
  out.raw(dense.data(), static_cast<size_t>(dense.size_bytes()));
}

Tensor decode_tensor(Reader& in) {
  const auto dtype = in.get<DType>();
  Shape shape = in.list<int64_t>();
  const auto bytes = in.take(in.count(1));
  int64_t count = 0, size_bytes = 0;
  try {
    count = element_count(shape);
  } catch (const UsageError& error) {
    throw WireError(error.what());
  }
  if (dtype.size_bytes() <= 0 || __builtin_mul_overflow(count, dtype.size_bytes(), &size_bytes) ||
      static_cast<uint64_t>(size_bytes) != bytes.size())
    throw WireError("a tensor's bytes do not fit its shape");
  Tensor tensor = Tensor::empty(std::move(shape), dtype);
  if (!bytes.empty()) std::memcpy(tensor.data(), bytes.data(), bytes.size());
  return tensor;
}

Value decode(Reader& in, int depth);

List decode_list(Reader& in, uint64_t n, int depth) {
  List list;
  list.reserve(std::min<uint64_t>(n, 1024));
  for (uint64_t i = 0; i < n; ++i) list.push_back(decode(in, depth + 1));
  return list;
}

Value decode(Reader& in, int depth) {
  using Kind = Value::Kind;
  if (depth > kMaxDepth) throw WireError("lists or dicts nested too deep");
  switch (static_cast<Kind>(in.get<uint8_t>())) {
    case Kind::kNone: return {};
    case Kind::kBool: return in.get<uint8_t>() != 0;
    case Kind::kInt: return in.get<int64_t>();
    case Kind::kFloat: return in.get<double>();
    case Kind::kStr: return in.text();
    case Kind::kBytes: return in.list<std::byte>();
    case Kind::kShape: return Value(in.list<int64_t>());
    case Kind::kDType: return in.get<DType>();
    case Kind::kDevice: return in.get<Device>();
    case Kind::kTensor: return decode_tensor(in);
    case Kind::kRegister: return RegisterRef{0, in.get<int64_t>()};
    case Kind::kList: return decode_list(in, in.count(1), depth);
    case Kind::kDict: {
      const uint64_t n = in.count(2);
      List keys = decode_list(in, n, depth);
      return Dict(std::move(keys), decode_list(in, n, depth));
    }
    case Kind::kFunction:
    case Kind::kOpaque: break;
  }
  throw WireError("an unknown kind of value");
}

std::string why_not(const Value& value, uint64_t session, int64_t most_tensor_bytes, int depth) {
  using Kind = Value::Kind;
  switch (value.kind()) {
    case Kind::kFunction: return to_string(value) + " can't travel; register it by name on every rank";
    case Kind::kOpaque: return to_string(value) + " can't travel; it lives on its worker";
    case Kind::kRegister:
      if (std::get<RegisterRef>(value.data()) == RegisterRef()) return "an empty DRef (it holds nothing)";
      if (std::get<RegisterRef>(value.data()).session == session && session != 0) return {};
      return session == 0 ? "a DRef can't travel inside a value" : to_string(value) + " belongs to another session";
    case Kind::kTensor: {
      const auto& tensor = std::get<Tensor>(value.data());
      if (!tensor) return "an empty Tensor (it holds nothing)";
      if (tensor.device().type != dl::kCPU) return fmt::format("a tensor on {} can't travel", to_string(tensor.device()));
      if (tensor.size_bytes() > most_tensor_bytes)
        return fmt::format("{} has {} bytes; a tensor argument may have {}: use copy_to_worker_0, broadcast or scatter",
                           to_string(value), tensor.size_bytes(), most_tensor_bytes);
      return {};
    }
    case Kind::kList:
    case Kind::kDict: {
      if (depth >= kMaxDepth) return "lists or dicts nested too deep";
      std::string why;
      each_item(value, [&](const Value& item) {
        if (why.empty()) why = why_not(item, session, most_tensor_bytes, depth + 1);
      });
      return why;
    }
    default: return {};
  }
}

}  // namespace

void throw_wire_error(const char* message) { throw WireError(message); }

bool has_content(const Value& value) {
  const auto* opaque = std::get_if<Opaque>(&value.data());
  if (opaque) return opaque->content != nullptr;
  bool has = false;
  each_item(value, [&](const Value& item) { has = has || has_content(item); });
  return has;
}

Value travelling(const Value& value, int depth) {
  if (depth > kMaxDepth) throw UsageError("lists or dicts nested too deep");
  if (!has_content(value)) return value;
  if (const auto* opaque = std::get_if<Opaque>(&value.data())) {
    const Value content = opaque->content(*opaque);
    if (content.kind() == Value::Kind::kOpaque) throw UsageError(to_string(value) + " has no content but another object");
    return travelling(content, depth);
  }
  return *with_items(value, [&](const Value& item) { return travelling(item, depth + 1); });
}

std::string why_not_encodable(const Value& value, uint64_t session, int64_t most_tensor_bytes) {
  return why_not(value, session, most_tensor_bytes, 0);
}

void encode(Writer& out, const Value& value) {
  out.put(static_cast<uint8_t>(value.kind()));
  if (const auto* i = std::get_if<int64_t>(&value.data())) return out.put(*i);  // the most frequent one
  std::visit(
      [&](const auto& v) {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::same_as<T, std::monostate>) {
        } else if constexpr (std::same_as<T, bool>) {
          out.put(static_cast<uint8_t>(v));
        } else if constexpr (std::same_as<T, std::string>) {
          out.text(v);
        } else if constexpr (std::same_as<T, Bytes> || std::same_as<T, Shape>) {
          out.list(v);
        } else if constexpr (std::same_as<T, Tensor>) {
          encode_tensor(out, v);
        } else if constexpr (std::same_as<T, List> || std::same_as<T, Dict>) {
          out.put(static_cast<uint64_t>(v.size()));
          each_item(value, [&](const Value& item) { encode(out, item); });
        } else if constexpr (std::same_as<T, RegisterRef>) {
          out.put(v.id);
        } else if constexpr (std::same_as<T, Function> || std::same_as<T, Opaque>) {
          throw UsageError(to_string(value) + " can't travel");
        } else {
          out.put(v);
        }
      },
      value.data());
}

Value decode_value(Reader& in) { return decode(in, 0); }

void decode_value(Reader& in, List& values) {
  Reader ahead = in;
  if (static_cast<Value::Kind>(ahead.get<uint8_t>()) == Value::Kind::kInt) {  // the most frequent one, in place
    in = ahead;
    values.emplace_back(in.get<int64_t>());
  } else {
    values.push_back(decode(in, 0));
  }
}

}  // namespace tutti::detail

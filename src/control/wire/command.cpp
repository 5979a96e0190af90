#include "control/wire/command.h"

#include <fmt/format.h>

#include "agreement/failures.h"

namespace tutti::detail {

const char* to_string(Action action) {
  constexpr const char* kNames[] = {"shut_down",         "kill_reg",           "get_global_func",  "call_packed",
                                    "sync_worker",       "copy_from_worker_0", "copy_to_worker_0", "debug_get_from_remote",
                                    "debug_set_register"};
  const auto i = static_cast<size_t>(action);
  return i < std::size(kNames) ? kNames[i] : "unknown action";
}

namespace {

void check_version(Reader& in) {
  if (const auto version = in.get<uint8_t>(); version != kWireVersion)
    throw WireError(fmt::format("wire version {}, expected {}: all ranks must run the same tutti", version, kWireVersion));
}

void encode(Writer& out, const DeviceLoss& loss) {
  out.put(loss.since);
  encode(out, loss.origin);
}
DeviceLoss decode_loss(Reader& in) {
  const auto since = in.get<uint64_t>();
  return {since, decode_origin(in)};
}

}  // namespace

void Command::clear() {
  action = Action::kShutDown;
  seq = token = 0;
  site = 0;
  reg = func = 0;
  is_new = false;
  worker = 0;
  acknowledged.clear();
  loss = {};
  freed.clear();
  name.clear();
  args.clear();
  offers.clear();
}

namespace {

void encode(Writer& out, const Command& c, std::span<const Value> args) {
  out.put(kWireVersion);
  out.put(c.action);
  out.put(c.seq);
  out.put(c.site);
  out.put(static_cast<uint32_t>(c.acknowledged.size()));
  for (Origin origin : c.acknowledged) encode(out, origin);
  if (!c.acknowledged.empty()) encode(out, c.loss);
  out.list(c.freed);
  if (c.action == Action::kCallPacked) {  // mostly, and before a jump that a processor may not foresee
    out.put(c.reg);
    out.put(c.func);
    out.put(static_cast<uint64_t>(args.size()));
    for (const Value& arg : args) detail::encode(out, arg);
    return;
  }
  switch (c.action) {
    case Action::kShutDown:
    case Action::kKillReg:
    case Action::kCallPacked: break;
    case Action::kGetGlobalFunc:
      out.put(c.reg);
      out.text(c.name);
      break;
    case Action::kSyncWorker: out.put(c.worker); break;
    case Action::kCopyFromWorker0:
    case Action::kCopyToWorker0:
      out.put(c.reg);
      out.put(int64_t{c.is_new});
      out.put(c.token);
      break;
    case Action::kDebugGetFromRemote:
      out.put(c.worker);
      out.put(c.reg);
      break;
    case Action::kDebugSetRegister:
      out.put(c.worker);
      out.put(c.reg);
      out.put(c.token);
      detail::encode(out, c.token ? Value() : args[0]);
      detail::encode(out, c.offers);
      break;
  }
}

void encode(Writer& out, const Reply& r) {
  out.put(kWireVersion);
  out.put(r.kind);
  out.put(r.worker);
  out.put(r.seq);
  out.put(r.token);
  encode(out, r.origin);
  out.put(r.site);
  if (r.kind == Reply::Kind::kValue) detail::encode(out, r.value);
  if (r.kind == Reply::Kind::kValue || r.kind == Reply::Kind::kPlaces) detail::encode(out, r.offers);
  if (r.kind == Reply::Kind::kError || r.kind == Reply::Kind::kConsequence) {
    for (const std::string* text :
         {&r.failure.host, &r.failure.kind, &r.failure.message, &r.failure.function, &r.failure.traceback})
      out.text(*text);
    out.put(r.failure.pid);
    encode(out, r.loss);
  }
}

template <class Encode>
void frame(Writer& out, Encode&& encode_payload) {
  const size_t begin = out.view().size();
  out.put(uint64_t{0});
  encode_payload();
  const uint64_t length = out.view().size() - begin - sizeof(uint64_t);
  std::memcpy(out.view().data() + begin, &length, sizeof length);
}

}  // namespace

void encode_frame(Writer& out, const Command& command, std::span<const Value> args) {
  frame(out, [&] { encode(out, command, args); });
}
void encode_frame(Writer& out, const Reply& reply) {
  frame(out, [&] { encode(out, reply); });
}

std::vector<std::byte> encode(const Command& command) {
  Writer out;
  encode(out, command, command.args);
  return std::move(out.bytes());
}

void decode_command(std::span<const std::byte> bytes, Command& c) {
  Reader in(bytes);
  check_version(in);
  c.action = in.get<Action>();
  if (c.action > Action::kDebugSetRegister) throw WireError(fmt::format("unknown action {}", static_cast<int>(c.action)));
  c.seq = in.get<uint64_t>();
  c.site = in.get<uint32_t>();
  for (auto n = in.get<uint32_t>(); n > 0; --n) c.acknowledged.push_back(decode_origin(in));
  if (!c.acknowledged.empty()) c.loss = decode_loss(in);
  in.list(c.freed);
  if (c.action == Action::kCallPacked) {
    c.reg = in.get<int64_t>();
    c.func = in.get<int64_t>();
    for (uint64_t n = in.count(1); n > 0; --n) decode_value(in, c.args);
    return in.expect_done();
  }
  switch (c.action) {
    case Action::kShutDown:
    case Action::kKillReg:
    case Action::kCallPacked: break;
    case Action::kGetGlobalFunc:
      c.reg = in.get<int64_t>();
      c.name = in.text();
      break;
    case Action::kSyncWorker: c.worker = in.get<int32_t>(); break;
    case Action::kCopyFromWorker0:
    case Action::kCopyToWorker0:
      c.reg = in.get<int64_t>();
      c.is_new = in.get<int64_t>() == 1;
      c.token = in.get<uint64_t>();
      break;
    case Action::kDebugGetFromRemote:
      c.worker = in.get<int32_t>();
      c.reg = in.get<int64_t>();
      break;
    case Action::kDebugSetRegister:
      c.worker = in.get<int32_t>();
      c.reg = in.get<int64_t>();
      c.token = in.get<uint64_t>();
      c.args.push_back(decode_value(in));
      c.offers = decode_offers(in);
      break;
  }
  in.expect_done();
}

std::vector<std::byte> encode(const Reply& reply) {
  Writer out;
  encode(out, reply);
  return std::move(out.bytes());
}

Reply decode_reply(std::span<const std::byte> bytes) {
  Reader in(bytes);
  check_version(in);
  Reply r;
  r.kind = in.get<Reply::Kind>();
  if (r.kind > Reply::Kind::kPlaces) throw WireError("an unknown kind of reply");
  r.worker = in.get<int32_t>();
  r.seq = in.get<uint64_t>();
  r.token = in.get<uint64_t>();
  r.origin = decode_origin(in);
  r.site = in.get<uint32_t>();
  if (r.kind == Reply::Kind::kValue) r.value = decode_value(in);
  if (r.kind == Reply::Kind::kValue || r.kind == Reply::Kind::kPlaces) r.offers = decode_offers(in);
  if (r.kind == Reply::Kind::kError || r.kind == Reply::Kind::kConsequence) {
    for (std::string* text : {&r.failure.host, &r.failure.kind, &r.failure.message, &r.failure.function, &r.failure.traceback})
      *text = in.text();
    r.failure.pid = in.get<int64_t>();
    r.loss = decode_loss(in);
    r.failure.worker = r.worker;
    r.failure.seq = r.seq;
  }
  in.expect_done();
  return r;
}

}  // namespace tutti::detail

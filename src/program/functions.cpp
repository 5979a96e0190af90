// The functions that workers call for programs.
#include <fmt/format.h>

#include "control/worker/functions_above.h"
#include "program/steps.h"
#include "tutti/function.h"

namespace tutti::detail {
namespace {

Steps::Step to_step(const Bytes& bytes, std::string site, bool stops) {
  Steps::Step step{.command = decode_command(bytes), .function = {}, .site = std::move(site), .stops = stops};
  if (step.command.action != Action::kCallPacked) throw WireError("a step of a program is a call");
  return step;
}

Function program(const std::string& name, const List& recorded, const Bytes& assigned, const List& registers) {
  std::vector<Steps::Step> steps;
  for (const Value& each : recorded) {
    const auto parts = each.as<List>();
    if (parts.size() != 3) throw WireError("a step of a program has 3 parts");
    steps.push_back(to_step(parts[0].as<Bytes>(), parts[1].as<std::string>(), parts[2].as<bool>()));
  }
  if (registers.size() != 4) throw WireError("a program has 4 lists of registers");
  const auto ids = [&](size_t i) { return registers[i].as<Shape>(); };
  return Replayed::function("program " + name,
                            std::make_shared<Steps>(*Worker::current(), name, std::move(steps), to_step(assigned, {}, false),
                                                    Steps::Registers{ids(0), ids(1), ids(2), ids(3)}));
}

bool stop_when(bool flag) {
  const Tensor all = Tensor::full<uint8_t>({1}, flag ? 1 : 0);
  worker::world().allreduce(all, all, ReduceOp::kMin);
  return all.item<uint8_t>() != 0;
}

/// An array of the controller, on worker 0: alone in a list, so that it stays in the host's memory.
Value lend(int64_t token) {
  if (worker::id() != 0) return {};
  return List{Worker::current()->take(static_cast<uint64_t>(token))};
}

Tensor lent(const Value& list) { return list.as<List>().at(0).as<Tensor>(); }

Value copy_new(const Value& from) {
  const Tensor host = lent(from);
  Tensor made = Tensor::empty(host.shape(), host.dtype(), worker::device());
  made.copy_from(host);
  return made;
}

void copy_to_worker0(const Value& from, const Tensor& remote) {
  remote.copy_from(lent(from));
  remote.clear_poison();
}

void copy_from_worker0(const Value& to, const Tensor& remote) { lent(to).copy_from(remote); }

}  // namespace

void register_program_functions() {
  const auto add = [](const char* name, auto function, const Function::Options& options = {}) {
    register_global_func(fmt::format("runtime.disco.{}", name), function, {.override_existing = true, .function = options});
  };
  add("program", program, {.never_skipped = true});
  add("stop_when", stop_when);
  add("program_item", [](const List& values, int64_t i) { return values.at(static_cast<size_t>(i)); });
  add("lend", lend, {.never_skipped = true});
  add("copy_new", copy_new, {.worker0_only = true});
  add("copy_to_worker0", copy_to_worker0, {.written_arg = 1, .worker0_only = true});
  add("copy_from_worker0", copy_from_worker0, {.worker0_only = true});
}

}  // namespace tutti::detail

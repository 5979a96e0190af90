// The commands that the controller broadcasts and the replies of workers. docs/formats.md states the layout.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agreement/origin.h"
#include "control/wire/apart.h"
#include "core/wire.h"
#include "tutti/action.h"

namespace tutti::detail {

inline constexpr uint8_t kWireVersion = 2;

using Action = DiscoAction;
const char* to_string(Action action);

inline constexpr int32_t kAllWorkers = -1;

struct Command {
  Action action = Action::kShutDown;
  uint64_t seq = 0;
  uint32_t site = 0;                 ///< where the controller issued it: an index into its table
  std::vector<Origin> acknowledged;  ///< failures that the controller has raised
  DeviceLoss loss;                   ///< acknowledged with them: all workers make new communicators of their devices
  std::vector<int64_t> freed;        ///< registers whose last DRef is gone
  int64_t reg = 0;                   ///< the register it writes, reads or sets
  int64_t func = 0;                  ///< call_packed: the register with the function
  bool is_new = false;               ///< copy_to_worker_0: the register is new, and gets the array itself
  int32_t worker = 0;                ///< sync_worker (kAllWorkers: all), debug_*
  uint64_t token = 0;                ///< copies, debug on worker 0: the key of a value in the controller's process
  std::string name;                  ///< get_global_func
  List args;                         ///< call_packed; debug_set_register: the one value
  std::vector<Offer> offers;         ///< debug_set_register: its large tensors, which have no place yet
  void clear();                      ///< keeps the memory
};
/// As a frame of a stream (control/segment/ring.h); `args` stand for the command's.
void encode_frame(Writer& out, const Command& command, std::span<const Value> args);
std::vector<std::byte> encode(const Command& command);  ///< without the frame
/// Fills `command` as far as the bytes are good: if seq is set, the command is known though its body may not be.
/// @throws WireError, std::bad_alloc
void decode_command(std::span<const std::byte> bytes, Command& command);
inline Command decode_command(std::span<const std::byte> bytes) {
  Command command;
  decode_command(bytes, command);
  return command;
}

struct Reply {
  enum class Kind : uint8_t { kAck, kValue, kToken, kPoisoned, kError, kConsequence, kPlaces } kind = Kind::kAck;
  int32_t worker = 0;
  uint64_t seq = 0;           ///< the command
  uint64_t token = 0;         ///< kToken, kPlaces: the value (a list of the tensors) lies in the controller's process
  Origin origin;              ///< kPoisoned, kConsequence
  uint32_t site = 0;          ///< kError, kConsequence
  Value value;                ///< kValue
  std::vector<Offer> offers;  ///< kValue: its large tensors; kPlaces: where debug_set_register's are to be written
  DeviceLoss loss;            ///< kError, kConsequence: of a worker with a device
  WorkerFailure failure;      ///< kError, kConsequence (its own words, should the origin stay silent)
};
std::vector<std::byte> encode(const Reply& reply);
void encode_frame(Writer& out, const Reply& reply);
Reply decode_reply(std::span<const std::byte> bytes);  ///< @throws WireError

}  // namespace tutti::detail

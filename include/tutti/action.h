#pragma once

#include <cstdint>

namespace tutti {

/// What a session asks of its workers, under TVM Disco's names and numbers. Every call becomes commands of these kinds: for tools
/// that read what a session records (docs/formats.md).
enum class DiscoAction : uint8_t {
  kShutDown = 0,
  kKillReg = 1,
  kGetGlobalFunc = 2,
  kCallPacked = 3,
  kSyncWorker = 4,
  kCopyFromWorker0 = 5,
  kCopyToWorker0 = 6,
  kDebugGetFromRemote = 7,
  kDebugSetRegister = 8,
};

}  // namespace tutti

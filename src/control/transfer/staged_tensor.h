#pragma once

#include <functional>

#include "control/segment/segment.h"

namespace tutti::detail {

/// A large tensor between the controller and a worker of its node, neither of which can reach the other's memory: in pieces
/// through the worker's staging memory, which no collective uses meanwhile. Both sides call; `relax` is called in waits.
/// @throws what `relax` throws
enum class Side { kController, kWorker };
void send_staged(Segment& segment, int worker, Side side, const void* data, size_t size_bytes,
                 const std::function<void()>& relax);
/// @param data  null: what comes is thrown away
void receive_staged(Segment& segment, int worker, Side side, void* data, size_t size_bytes, const std::function<void()>& relax);

}  // namespace tutti::detail

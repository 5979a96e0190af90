// A device whose work is done late: memory that the host can't touch, streams that are threads with random delays, work that may
// fail. Of this process only.
#pragma once

#include <functional>
#include <string>

#include "device/device_api.h"

namespace tutti_test::delayed {

inline constexpr int32_t kType = 12;  // DLPack's kDLExtDev

/// Makes the device and the ccl "delayed" known. Once.
void install();
void set_seed(uint64_t seed);  ///< of the delays

/// Runs on the stream, later. What it throws is the stream's failure.
void enqueue(tutti::detail::Stream stream, std::function<void()> work);
/// Where work finds memory that was allocated on the device; host memory is found as it is.
char* reach(const void* memory);
size_t blocks();  ///< allocated and not yet freed

/// The next collective of the ccl fails on all its members, while it is under way.
void fail_next_collective(const std::string& why);
/// The next collective of the ccl is never complete; its communicator tells why (poll_error), and can be aborted.
void lose_next_collective(const std::string& why);

}  // namespace tutti_test::delayed

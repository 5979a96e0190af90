// A driver of GPUs that are not there, for tests: libcuda.so.1 and libamdhip64.so, which the library loads by their paths. Memory
// can't be touched by the host; a stream is a thread with random delays; what a program may not rely on fails. Environment:
//   STANDIN_DEVICES=4            GPUs of the machine, of which CUDA_VISIBLE_DEVICES may list some
//   STANDIN_MEMORY=1073741824    bytes of each
//   STANDIN_VERSION=13000        of the driver
//   STANDIN_WITHOUT=cuMemFree    a function that it does not have
//   STANDIN_SEED=1               of the delays
//   STANDIN_FAIL=cuMemFreeAsync:3:700   this function's third use in this process returns that; several with commas
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace standin {

using Stream = void*;

/// Runs on the stream, later. What it returns, if not 0, is the device's sticky error.
[[gnu::visibility("default")]] void enqueue(Stream stream, std::function<int()> work);
/// Where work finds memory of the stream's device; null: there is none (freed, never allocated, of another device).
[[gnu::visibility("default")]] char* reach(Stream stream, const void* memory, size_t size_bytes);
[[gnu::visibility("default")]] bool is_stream(Stream stream);
[[gnu::visibility("default")]] int current_device();  ///< of this thread; -1: none
[[gnu::visibility("default")]] int device_of(Stream stream);
[[gnu::visibility("default")]] int physical_device(int id);  ///< which one of the machine it is, whatever hides others
[[gnu::visibility("default")]] int device_count();
/// Beside what the pool uses and keeps, for another library.
[[gnu::visibility("default")]] bool has_room(int id, size_t size_bytes);
/// Waits for all that has been enqueued on the device, as it does when memory is freed there (cudaFree).
[[gnu::visibility("default")]] void synchronize(int id);
/// 0, or what this use of a function is to return (STANDIN_FAIL).
[[gnu::visibility("default")]] int injected(const char* function);

}  // namespace standin

// For test programs, by dlsym.
extern "C" {
[[gnu::visibility("default")]] void standin_set_seed(uint64_t seed);
[[gnu::visibility("default")]] void standin_fail(const char* function, uint64_t use, int status);  ///< from now on; "" for none
[[gnu::visibility("default")]] void standin_print_uses();  ///< "use cuInit 1": each function that knows STANDIN_FAIL
[[gnu::visibility("default")]] size_t standin_blocks();    ///< of device memory, allocated and not yet freed
[[gnu::visibility("default")]] void standin_launch(void* stream, int (*kernel)(void*), void* argument);
[[gnu::visibility("default")]] void* standin_reach(void* stream, void* memory);  ///< for kernels
}

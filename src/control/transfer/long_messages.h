#pragma once

#include <cstddef>
#include <functional>

namespace tutti::detail {

/// A large tensor between the controller and a worker out of whose reach its memory is, on the communicator for data (MPI_Comm*).
/// Both sides call. The call returns when the memory is its caller's again. `relax` is called meanwhile.
/// @throws TransportError, what `relax` throws
void send_long(void* comm, int rank, const void* data, size_t size_bytes, const std::function<void()>& relax);
/// @param data  null: what comes is thrown away
void receive_long(void* comm, int rank, void* data, size_t size_bytes, const std::function<void()>& relax);

}  // namespace tutti::detail

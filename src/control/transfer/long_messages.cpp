#include "control/transfer/long_messages.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "collective/mpi/mpi_handles.h"
#include "core/doorbell.h"

namespace tutti::detail {
namespace {

using namespace std::chrono_literals;
constexpr int kLongTag = 2;  // beside those of send and recv (collective/mpi)
constexpr size_t kLongPiece = size_t{4} << 20;

void await(MPI_Request& request, const std::function<void()>& relax) {
  constexpr auto kAwake = 10ms, kNap = 1ms;  // the other side may be long in coming
  const auto begun = Clock::now();
  for (int done = 0;;) {
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done) return;
    relax();
    if (Clock::now() - begun < kAwake) yield_cpu();
    else std::this_thread::sleep_for(kNap);
  }
}

template <class Start>
void in_pieces(size_t size_bytes, const std::function<void()>& relax, Start start) {
  for (size_t at = 0; at < size_bytes; at += kLongPiece) {
    MPI_Request request = MPI_REQUEST_NULL;
    start(at, static_cast<int>(std::min(kLongPiece, size_bytes - at)), &request);
    try {
      await(request, relax);
    } catch (...) {  // the session is lost; what comes late must not find the memory of somebody else
      MPI_Cancel(&request);
      MPI_Request_free(&request);
      throw;
    }
  }
}

}  // namespace

void send_long(void* comm, int rank, const void* data, size_t size_bytes, const std::function<void()>& relax) {
  in_pieces(size_bytes, relax, [&](size_t at, int size, MPI_Request* request) {
    const char* piece = static_cast<const char*>(data) + at;
    check_mpi(MPI_Isend(piece, size, MPI_BYTE, rank, kLongTag, *static_cast<MPI_Comm*>(comm), request), "MPI_Isend");
  });
}

void receive_long(void* comm, int rank, void* data, size_t size_bytes, const std::function<void()>& relax) {
  std::vector<char> nowhere(data ? 0 : kLongPiece);
  in_pieces(size_bytes, relax, [&](size_t at, int size, MPI_Request* request) {
    char* piece = data ? static_cast<char*>(data) + at : nowhere.data();
    check_mpi(MPI_Irecv(piece, size, MPI_BYTE, rank, kLongTag, *static_cast<MPI_Comm*>(comm), request), "MPI_Irecv");
  });
}

}  // namespace tutti::detail

#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/device.h"
#include "tutti/error.h"

namespace tutti::detail {

/// The device can't be used by this process any more: a kernel has written where it must not, say. The session is over.
class DeviceLost : public TransportError {
 public:
  using TransportError::TransportError;
};

/// A queue of a device's work, in its driver's terms (cudaStream_t, say). Null: the default one. Host memory has none.
using Stream = void*;
/// A place in a stream: what was enqueued before is done when the event is.
using Event = void*;

/// What a device offers whose work goes on after a call has returned. Thread-safe.
class StreamApi {
 public:
  virtual ~StreamApi() = default;
  virtual void set_device(int device_id) = 0;  ///< of this thread
  virtual Stream make(int device_id) = 0;      ///< @throws SystemError
  virtual void destroy(int device_id, Stream stream) noexcept = 0;
  virtual Event record(int device_id, Stream stream) = 0;
  virtual bool is_done(Event event) = 0;  ///< @throws SystemError  the work before it has failed
  virtual void free_event(Event event) noexcept = 0;
  /// What comes later on `stream` is done after the event: of whichever device of this type.
  virtual void wait(int device_id, Stream stream, Event event) = 0;
  /// What comes later on `stream` is done after what is by now on any stream that was made here, and on the default one.
  virtual void wait_for_all(int /*device_id*/, Stream /*stream*/) {}
  /// Calls it once what is by now on those streams, and on `more`, is done: soon, or in a later call.
  virtual void release_later(int /*device_id*/, const std::vector<Stream>& /*more*/, std::function<void()>&& release) noexcept {
    release();
  }
  virtual void release_done(int /*device_id*/) noexcept {}
  /// Memory that is kept for new tensors goes back to the driver: another library is about to allocate.
  virtual void trim(int /*device_id*/) noexcept {}

  static constexpr size_t kPieceBytes = size_t{1} << 20;
  /// kPieceBytes of the host's memory that the device can read and write by itself.  @throws SystemError
  virtual void* take_piece(int device_id) = 0;
  /// Unused from now on; with an event, which goes with it: once that is done.
  virtual void give_back_piece(int device_id, void* piece, Event after) noexcept = 0;
};

/// What a kind of memory must offer. Implementations are thread-safe.
class DeviceApi {
 public:
  virtual ~DeviceApi() = default;
  virtual std::string_view name() const = 0;
  /// "0000:3b:00.0", as in topology::Assignment, of each device that this process may use; empty: not known.
  virtual std::vector<std::string> pci_ids() { return {}; }
  /// Aligned to 64; for work on `stream` from now on.  @throws SystemError
  virtual void* allocate(size_t size_bytes, int device_id, Stream stream) = 0;
  /// Work that is on `stream` by now may use the memory still; null: work on any stream.
  virtual void free(void* memory, size_t size_bytes, int device_id, Stream stream) noexcept = 0;
  /// On `stream`, which is to_device's, unless that is the host. Where streams() is not null, the host's memory is a piece, and
  /// used later.
  virtual void copy(void* to, const void* from, size_t size_bytes, Device to_device, Device from_device, Stream stream) = 0;
  /// Null: work is done when the call returns.
  virtual StreamApi* streams() { return nullptr; }
};

}  // namespace tutti::detail

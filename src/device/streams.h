#pragma once

#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "device/device_api.h"
#include "device/weak_tensor.h"

namespace tutti::detail {

/// The streams on which one worker's work for its devices belongs, and what is under way on them. A worker has one such object,
/// also when it runs on two threads, as worker 0 does.
class Streams {
 public:
  /// Work that can't succeed.
  struct Broken {
    std::exception_ptr error;
    Tensor::Poison origin;
    bool is_device_lost = false;
  };
  struct Owner {
    /// While work is waited for: whether it is broken. The wait goes on until the work has ended: it may be in the caller's
    /// memory. What this throws breaks the wait off.
    std::function<std::optional<Broken>()> relax = [] { return std::nullopt; };
    /// Whether work that is done counts as done: nothing else has to be looked at, in relax().
    std::function<bool()> is_settled = [] { return true; };
    std::function<Tensor::Poison()> here = [] { return Tensor::Poison{}; };  ///< the worker and its command
  };
  Streams() = default;
  explicit Streams(Owner owner) : owner_(std::move(owner)) {}
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  ~Streams();

  Stream find(Device device) const;
  Stream current(Device device);                        ///< whoever asks puts work there
  Stream set(Device device, Stream stream);             ///< the caller's own; returns the one before
  void make(Device device);                             ///< one of ours, where there is none yet
  bool is_busy() const { return !used_.empty(); }       ///< work may be under way
  std::vector<Stream> streams_of(Device device) const;  ///< on which work may be under way
  void wrote(const Tensor& tensor);                     ///< or: it will be, by work that is under way
  /// Until all work is done.  @throws SystemError  it has failed: what was written since the last time is poisoned, the origin
  /// being the command that runs now  @throws anything  what relax() says or throws
  void finish();
  void await(Device device, Event event);  ///< throws as finish()
  void lose(Tensor::Poison origin);        ///< what is under way won't be written

 private:
  using Key = std::pair<int32_t, int32_t>;  // type and id of a device
  std::optional<Broken> end_of(Device device, Event event);
  void prune();

  Owner owner_;
  std::map<Key, Stream> current_;
  std::map<Key, Stream> made_;
  std::vector<std::pair<Device, Stream>> used_;  // since the last finish()
  std::vector<Tensor::Weak> written_;            // since then
  size_t prune_at_ = 64;
};

/// What comes later on `stream` is done after what is on `other` by now.  @throws SystemError
void order(Device device, Stream stream, Device other_device, Stream other);

/// Memory of a device that is not ours goes back to its owner, once what is under way on any of its streams is done.
void release_foreign(Device device, std::function<void()> release) noexcept;

/// This thread's from now on; null: the thread's own.
void use_streams(Streams* streams);
Streams& current_streams();

Stream stream_to_free_on(Device device);  ///< the worker's; on other threads null, which is after work of any stream
Stream current_stream(Device device);     ///< null (the default stream, or none: the CPU) until set
Stream set_current_stream(Device device, Stream stream);  ///< returns the one before

}  // namespace tutti::detail

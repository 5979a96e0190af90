#pragma once

#include <functional>
#include <mutex>
#include <set>
#include <vector>

#include "device/cuda/driver.h"
#include "device/device_api.h"

namespace tutti::detail::gpu {

/// One GPU, as this process uses it: its primary context (that of CUDA's runtime, torch and NCCL, too), a pool of memory of ours,
/// its streams and events. Thread-safe. Made once, and never freed: tensors in static objects may go later.
class Gpu {
 public:
  /// @throws SystemError
  Gpu(const Driver& driver, int id);
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  void set_current() const { driver_.run(id_, f_.context_set, context_); }  ///< of this thread, from now on
  Handle context() const { return context_; }

  /// For work on `stream`; null: on any stream, at once.  @throws SystemError  also: no memory, with who has how much
  void* allocate(size_t size_bytes, Stream stream);
  void trim() noexcept { f_.pool_trim.call(pool_, 0); }
  void free(void* memory, Stream stream) noexcept;  ///< null: once the work of all streams that we know is done
  void copy_to_device(void* to, const void* from, size_t size_bytes, Stream stream);
  void copy_to_host(void* to, const void* from, size_t size_bytes, Stream stream);
  void copy_on_device(void* to, const void* from, size_t size_bytes, Stream stream);
  void copy_from_peer(void* to, const Gpu& peer, const void* from, size_t size_bytes, Stream stream);

  Stream make_stream();
  void destroy_stream(Stream stream) noexcept;
  /// An event of a GPU, which is used again.
  struct Mark {
    Gpu& gpu;
    Handle event;
  };
  Mark* record(Stream stream);
  void give_back(Mark* mark) noexcept;
  bool is_done(const Mark& mark) const;
  void wait(Stream stream, const Mark& mark) const;

  // as StreamApi
  void wait_for_all(Stream stream);
  void release_later(const std::vector<Stream>& more, std::function<void()>&& release) noexcept;
  void release_done() noexcept;
  void* take_piece();
  void give_back_piece(void* piece, Mark* after) noexcept;

 private:
  class Current;
  Handle new_stream() const;
  Status query(const Mark& mark) const;
  void await_frees();
  std::string used(size_t asked) const;

  const Driver& driver_;
  const Functions& f_;
  const int id_;
  Handle context_ = nullptr, pool_ = nullptr;
  Stream allocating_ = nullptr, freeing_ = nullptr;  // of threads that have no stream

  std::mutex streams_mutex_;
  std::set<Stream> streams_;
  std::mutex unused_mutex_;
  std::vector<Mark*> unused_marks_;
  struct Piece {
    void* memory;
    Mark* after;
  };
  std::vector<Piece> unused_pieces_;  // once `after` is done
  std::mutex held_mutex_;
  struct Held {
    Mark* end;  // null: the device is lost, and nobody knows what goes on there
    std::function<void()> release;
  };
  std::vector<Held> held_;
  std::vector<void*> pieces_;  // also those that a copy has lost: the GPU may still use them
};

}  // namespace tutti::detail::gpu

#include "support/delayed_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "device/devices.h"
#include "support/delayed_communicator.h"
#include "tutti/error.h"

namespace tutti_test::delayed {
namespace {

using namespace tutti;
using namespace tutti::detail;

std::atomic<uint64_t> seed{1};
std::atomic<uint64_t> streams_made{0};

/// Work in order, each piece after a delay.
class Queue {
 public:
  Queue() : random_(seed + ++streams_made), thread_([this] { serve(); }) {}
  ~Queue() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }
  void add(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    changed_.notify_all();
  }
  /// Of its work, until somebody has been told.
  struct Failure {
    std::mutex mutex;
    std::string text;
  };
  const std::shared_ptr<Failure>& failure() const { return failure_; }

 private:
  void serve() {
    for (std::unique_lock lock(mutex_);;) {
      changed_.wait(lock, [&] { return ends_ || !work_.empty(); });
      if (work_.empty()) return;
      std::function<void()> work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      if (random_() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random_() % 1000));
      try {
        work();
      } catch (const std::exception& error) {
        const std::lock_guard failed(failure_->mutex);
        if (failure_->text.empty()) failure_->text = error.what();
      }
      work = nullptr;  // what it holds may want the device's lock
      lock.lock();
    }
  }

  std::mt19937_64 random_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool ends_ = false;
  std::shared_ptr<Failure> failure_ = std::make_shared<Failure>();
  std::thread thread_;
};

/// A piece of memory, mapped twice.
struct Block {
  char* hidden;   // what tensors hold: neither to be read nor written
  char* visible;  // what work uses
  size_t size;
};

class Device final : public DeviceApi, public StreamApi {
 public:
  std::string_view name() const override { return "delayed"; }

  void* allocate(size_t size_bytes, int /*device_id*/, Stream) override {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE)), size = (size_bytes + page - 1) / page * page;
    const int fd = memfd_create("delayed", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(size)) != 0) throw SystemError("delayed: no memory");
    void* hidden = mmap(nullptr, size, PROT_NONE, MAP_SHARED, fd, 0);
    void* visible = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (hidden == MAP_FAILED || visible == MAP_FAILED) throw SystemError("delayed: no address space");
    std::memset(visible, 0x5a, size);
    const std::lock_guard lock(mutex_);
    blocks_[static_cast<char*>(hidden)] = {static_cast<char*>(hidden), static_cast<char*>(visible), size};
    return hidden;
  }

  void free(void* memory, size_t, int /*device_id*/, Stream stream) noexcept override {
    if (stream) return enqueue(stream, [this, memory] { give_back(memory); });
    const std::lock_guard lock(mutex_);  // no stream is destroyed meanwhile
    auto last = std::shared_ptr<void>(nullptr, [this, memory](void*) { give_back(memory); });
    for (Queue* queue : queues_) queue->add([last] {});
    if (queues_.empty()) last.reset();
  }

  void copy(void* to, const void* from, size_t size_bytes, tutti::Device, tutti::Device, Stream stream) override {
    const auto move = [=, this] { std::memmove(reach(to), reach(from), size_bytes); };
    enqueue(stream ? stream : &default_stream(), move);
  }

  StreamApi* streams() override { return this; }
  void set_device(int) override {}
  Stream make(int /*device_id*/) override {
    auto* queue = new Queue;
    const std::lock_guard lock(mutex_);
    queues_.insert(queue);
    return queue;
  }
  void destroy(int /*device_id*/, Stream stream) noexcept override {
    auto* queue = static_cast<Queue*>(stream);
    {
      const std::lock_guard lock(mutex_);
      queues_.erase(queue);
    }
    delete queue;
  }

  struct Mark {
    ~Mark() { ::operator delete(piece); }
    std::mutex mutex;
    bool is_done = false;
    std::shared_ptr<Queue::Failure> failure = nullptr;  // of the work before it
    void* piece = nullptr;                              // not used any more once it is done
  };
  Event record(int /*device_id*/, Stream stream) override {
    auto* queue = static_cast<Queue*>(stream ? stream : &default_stream());
    auto mark = std::make_shared<Mark>();
    queue->add([failure = queue->failure(), mark] {
      const std::lock_guard lock(mark->mutex), failed(failure->mutex);
      mark->is_done = true;
      if (!failure->text.empty()) mark->failure = failure;
    });
    return new std::shared_ptr<Mark>(mark);
  }
  bool is_done(Event event) override {
    Mark& mark = **static_cast<std::shared_ptr<Mark>*>(event);
    const std::lock_guard lock(mark.mutex);
    if (mark.failure) {
      const std::lock_guard failed(mark.failure->mutex);
      if (const std::string text = std::exchange(mark.failure->text, {}); !text.empty()) throw SystemError(text);
    }
    return mark.is_done;
  }
  void free_event(Event event) noexcept override { delete static_cast<std::shared_ptr<Mark>*>(event); }
  void wait(int /*device_id*/, Stream stream, Event event) override {
    static_cast<Queue*>(stream ? stream : &default_stream())->add([mark = *static_cast<std::shared_ptr<Mark>*>(event)] {
      for (bool is_done = false; !is_done; std::this_thread::sleep_for(std::chrono::microseconds(10))) {
        const std::lock_guard lock(mark->mutex);
        is_done = mark->is_done;
      }
    });
  }
  void* take_piece(int /*device_id*/) override { return ::operator new(kPieceBytes); }
  void give_back_piece(int /*device_id*/, void* piece, Event after) noexcept override {
    if (!after) return ::operator delete(piece);
    const auto mark = *static_cast<std::shared_ptr<Mark>*>(after);
    free_event(after);
    const std::lock_guard lock(mark->mutex);
    mark->piece = piece;
  }

  char* reach(const void* memory) {
    auto* at = static_cast<char*>(const_cast<void*>(memory));
    const std::lock_guard lock(mutex_);
    auto it = blocks_.upper_bound(at);
    if (it == blocks_.begin()) return at;
    const Block& block = std::prev(it)->second;
    return at < block.hidden + block.size ? block.visible + (at - block.hidden) : at;
  }
  size_t blocks() {
    const std::lock_guard lock(mutex_);
    return blocks_.size();
  }

 private:
  void give_back(void* memory) {
    const std::lock_guard lock(mutex_);
    const auto node = blocks_.extract(static_cast<char*>(memory));
    munmap(node.mapped().hidden, node.mapped().size);
    munmap(node.mapped().visible, node.mapped().size);
  }
  Queue& default_stream() {
    static auto& queue = *new Queue;
    return queue;
  }

  std::recursive_mutex mutex_;  // free() may find nothing to wait for
  std::map<char*, Block> blocks_;
  std::set<Queue*> queues_;
};

Device& device() {
  static auto& one = *new Device;
  return one;
}

}  // namespace

void install() {
  static const bool once = (add_device_api(kType, device()), add_communicator(), true);
  (void)once;
}
void set_seed(uint64_t value) { seed = value; }
void enqueue(Stream stream, std::function<void()> work) { static_cast<Queue*>(stream)->add(std::move(work)); }
char* reach(const void* memory) { return device().reach(memory); }
size_t blocks() { return device().blocks(); }

}  // namespace tutti_test::delayed

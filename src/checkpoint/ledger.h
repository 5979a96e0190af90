#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/file.h"

namespace tutti::detail {

/// What the workers say of a save, in a file: they write while commands go on, so nothing else tells the controller. A worker
/// closes the file when it has written, so that other nodes see it.
class Ledger {
 public:
  enum class State : int64_t { kWriting, kDone, kFailed };
  struct Record {
    State state = State::kWriting;
    int64_t bytes_written = 0, syncs = 0;  ///< the latter: begun and ended
    char message[1000] = {};
  };

  /// The controller's. The file is locked as long as it is open, by which others know that the save goes on.
  Ledger(std::string path, int workers, size_t tensors);
  const std::string& path() const { return path_; }
  std::vector<Record> records() const;  ///< by worker
  std::vector<uint32_t> crcs() const;   ///< by tensor: those of all workers, together
  /// Of an index: the id in the names of the files that are removed once the save has replaced it.
  void set_earlier(const std::string& id) const;
  static std::string earlier_of(const std::string& path);  ///< empty: not set
  /// The controller that made it has ended. One without content, of a controller that was killed at once, or that is just making
  /// it and will make another, is removed.
  static bool is_abandoned(const std::string& path);

  // A worker's.
  static void note(const std::string& path, int worker, size_t tensors, const Record& record);  ///< while it writes
  static void finish(const std::string& path, int worker, int64_t bytes_written, const std::vector<uint32_t>& crcs);
  static void fail(const std::string& path, int worker, size_t tensors, const std::string& message) noexcept;

 private:
  std::string path_;
  int workers_;
  size_t tensors_;
  File lock_;
};

}  // namespace tutti::detail

// Checkpoints: DTensors in files of the safetensors and .npy formats. Each worker writes and reads its own bytes; a file that was
// saved from one mesh can be loaded on any other.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "tutti/distributed.h"
#include "tutti/export.h"
#include "tutti/session.h"

namespace tutti::distributed {

class Saving;

struct SaveOptions {
  std::map<std::string, std::string> metadata = {};  ///< kept in the file's header; not in .npy
  int64_t file_bytes = int64_t{4} << 30;             ///< of an index: no file with more than one tensor is larger
  /// Past the page cache (O_DIRECT), where the file system can: for large files that are not read again soon.
  bool direct = false;
  /// Called once, on the calling thread, before the workers write. Who keeps the Saving may ask for bytes_written() from another
  /// thread. What it throws ends the save; wait() inside of it is a UsageError.
  std::function<void(const Saving&)> begun = {};
};

/// A save that is under way. A handle; when the last copy goes, it waits for the end, and logs what went wrong.
class TUTTI_API Saving {
 public:
  bool is_done() const;           ///< the files are there, or the save has failed
  int64_t total_bytes() const;    ///< of the tensors
  int64_t bytes_written() const;  ///< so far, as far as the file system shows it
  /// Waits until the files are there. Synchronising.
  /// @throws SystemError  a worker could not write, or wrote nothing for TUTTI_TIMEOUT seconds: the earlier files are as they
  ///         were; or the message says that the new ones are there
  /// @throws TimeoutError  the save goes on
  void wait(Timeout timeout = {}, Where where = Where::current());

 private:
  friend TUTTI_API void save(Session& session, const std::string& path, const std::map<std::string, DTensor>& tensors,
                             const SaveOptions& options, Timeout timeout, Where where);
  friend TUTTI_API Saving save_async(Session& session, const std::string& path, const std::map<std::string, DTensor>& tensors,
                                     const SaveOptions& options, Timeout timeout, Where where);
  struct State;
  static void announce(const std::shared_ptr<State>& state, const SaveOptions& options);
  static std::shared_ptr<State> begin(Session& session, const std::string& path, const std::map<std::string, DTensor>& tensors,
                                      const SaveOptions& options, bool is_async, Timeout timeout, Where where);
  explicit Saving(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

/// Saves tensors by name. The end of `path` says the format:
///   .safetensors             one file
///   .safetensors.index.json  an index, with files of `file_bytes` beside it: as huggingface's transformers does
///   .npy                     one file, of one tensor, whose name is not kept
/// The files appear at once, or not at all: until then, and after a crash, those of an earlier save are as they were. All workers
/// have to see the same file system. Each writes its own bytes; of replicas each writes a share. Partial values are reduced
/// first. Synchronising.
/// @throws UsageError  another ending; a dtype that the format lacks; a name that is empty or not UTF-8
/// @throws RemoteError  a worker could not write
/// @throws SystemError  no such folder, no room; as Saving::wait
/// @throws TimeoutError  nothing appears; the files that were begun are removed once the workers are through with them
TUTTI_API void save(Session& session, const std::string& path, const std::map<std::string, DTensor>& tensors,
                    const SaveOptions& options = {}, Timeout timeout = {}, Where where = Where::current());

/// The same, but waits only until the workers have copied their parts. They write while the session works on. Synchronising.
[[nodiscard]] TUTTI_API Saving save_async(Session& session, const std::string& path,
                                          const std::map<std::string, DTensor>& tensors, const SaveOptions& options = {},
                                          Timeout timeout = {}, Where where = Where::current());

/// What a file or an index holds. A .npy file has one tensor, "".
/// @throws UsageError  it is damaged, or none of these; SystemError  it can't be read
TUTTI_API std::map<std::string, TensorStructInfo> stored_tensors(const std::string& path);

/// SaveOptions::metadata of the save that made it, or what another program keeps as text in its place. Of a .npy file there is
/// none, and only that it is there is looked at.  @throws UsageError  it is damaged, or none of these; SystemError  it can't be
/// read
TUTTI_API std::map<std::string, std::string> stored_metadata(const std::string& path);

/// Says where a tensor is to lie; nullopt leaves it out.
using ChoosePlacement = std::function<std::optional<Placement>(const std::string& name, const TensorStructInfo& info)>;

struct LoadOptions {
  bool verify = true;   ///< compares checksums, if the file has those of tutti; that takes time
  bool direct = false;  ///< past the page cache (O_DIRECT), where the file system can: for files that are read once
};

/// Loads tensors from a file or an index. Each worker reads its own bytes, and what lies close between them. Synchronising.
/// @throws UsageError   the file is damaged; a placement does not fit
/// @throws RemoteError  a worker could not read; a checksum differs
/// @throws SystemError  the file can't be read
TUTTI_API std::map<std::string, DTensor> load(Session& session, const std::string& path, const DeviceMesh& mesh,
                                              const ChoosePlacement& choose, const LoadOptions& options = {},
                                              Timeout timeout = {}, Where where = Where::current());

}  // namespace tutti::distributed

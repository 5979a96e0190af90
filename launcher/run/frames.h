#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace tutti::launcher {

enum class Stream { kOut = 1, kErr = 2 };  ///< as the descriptors are numbered

/// Of ranks' output on its way to `tutti run`: one size, a rank's number and stream at the begin. A pipe takes one whole.
/// mpirun reads and writes at most 4 KiB at a time, a whole number of frames, and so never mixes two ranks inside one. Nothing
/// is looked for in the text of a rank, so no text can be taken for another's.
constexpr size_t kFrameBytes = 512;
constexpr size_t kFramesAtOnce = 4096;  ///< bytes; what a pipe takes whole (PIPE_BUF)

std::string framed(int rank, Stream stream, std::string_view text);

/// Gives back what `framed` was given, and the launcher's own words between frames.
class Unframer {
 public:
  static constexpr int kLauncher = -1;                                               ///< as a rank: the launcher's own words
  using Sink = std::function<void(int rank, Stream stream, std::string_view text)>;  ///< the launcher's: the stream is `own`

  Unframer(Stream own, Sink sink) : own_(own), sink_(std::move(sink)) {}
  void feed(std::string_view text);
  void finish();  ///< a frame that was cut off counts as far as it came

 private:
  Stream own_;
  Sink sink_;
  std::string begun_;  // a frame
};

}  // namespace tutti::launcher

// What ranks and launchers write: whatever a rank says comes back from its frames; no frame, label or end of a task is read past
// its text.
#include <cstdlib>
#include <string>

#include "run/frames.h"
#include "run/lines.h"
#include "test/report.h"

using namespace tutti::launcher;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  Unframer any(Stream::kErr, [](int, Stream, std::string_view) {});
  any.feed(std::string_view(text).substr(0, size / 2));
  any.feed(std::string_view(text).substr(size / 2));
  any.finish();
  std::string_view line = text;
  (void)take_label(line);
  (void)end_of_task(text);
  (void)code_of_abort(text);
  (void)read_cases(text);

  const std::string frames = framed(7, Stream::kOut, text);
  std::string back;
  Unframer unframer(Stream::kErr, [&](int rank, Stream stream, std::string_view part) {
    if (rank != 7 || stream != Stream::kOut) std::abort();
    back += part;
  });
  unframer.feed(std::string_view(frames).substr(0, frames.size() / 3));
  unframer.feed(std::string_view(frames).substr(frames.size() / 3));
  unframer.finish();
  if (back != text) std::abort();
  return 0;
}

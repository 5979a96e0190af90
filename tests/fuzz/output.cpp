// What ranks and launchers write: whatever a rank says comes back from its marked lines; no tag, no task's end is read past its text.
#include <cstdlib>
#include <string>

#include "run/lines.h"
#include "test/report.h"

using namespace tutti::launcher;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const Launcher by : {Launcher::kMpirun, Launcher::kSrun}) {
    Untangler untangler(by, [](int, std::string_view) {});
    untangler.feed(std::string_view(text).substr(0, size / 2));
    untangler.feed(std::string_view(text).substr(size / 2));
    untangler.finish();
  }
  (void)end_of_task(text);
  (void)code_of_abort(text);
  (void)read_cases(text);
  if (text.find('[') != std::string::npos) return 0;  // may look like a tag

  LineMarker marker;
  std::string marked = marker.feed(std::string_view(text).substr(0, size / 3));
  marked += marker.feed(std::string_view(text).substr(size / 3));
  marked += marker.finish();
  std::string back;
  Untangler untangler(Launcher::kMpirun, [&](int, std::string_view line) { back.append(line) += '\n'; });
  untangler.feed("[1,0]<stdout>:");
  for (const char c : marked) untangler.feed(c == '\n' ? "\n[1,0]<stdout>:" : std::string_view(&c, 1));
  untangler.finish();
  if (back != text + (text.empty() || text.ends_with('\n') ? "" : "\n")) std::abort();
  return 0;
}

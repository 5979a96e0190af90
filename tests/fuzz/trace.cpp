// Files of the flight recorders: any text is a trace or a UsageError; a trace has a report and a timeline. The input is the text,
// or, as few random texts are JSON, changes to a good one.
#include "trace/trace.h"

#include <string>

#include "tutti/error.h"

namespace {

const std::string kGood =
    R"({"schema":"tutti.trace/1","job":"1f","session":1,"dump":0,"reason":"error","written":1700000000000000900,"worker":1,
"workers":4,"groups":2,"host":"node7","pid":4711,"finished":4,"records":[
{"number":1,"command":4,"state":"failed","begin":1700000000000000100,"end":1700000000000000200,"action":"call_packed","function":"f"},
{"number":2,"command":4,"state":"running","begin":1700000000000000300,"collective":"allreduce","communicator":0,"index":0,"count":9,
"dtype":"float32","op":"sum","root":0,"agreed":1700000000000000400}]})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  if (size > 0 && data[0] % 2) {
    text = kGood;
    for (size_t i = 1; i + 3 <= size; i += 3)
      text[static_cast<size_t>(data[i] | data[i + 1] << 8) % text.size()] = static_cast<char>(data[i + 2]);
  }
  try {
    const auto session = tutti::trace::read_text(text, "fuzz");
    if (session.workers <= 1000 && tutti::trace::report(session).empty()) std::abort();
    if (tutti::trace::timeline({session, session}).empty()) std::abort();
  } catch (const tutti::UsageError&) {
  }
  return 0;
}

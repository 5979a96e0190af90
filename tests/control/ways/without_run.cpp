// A program without tutti::run: threads work, the rest says what is missing.
#include <cstdio>
#include <cstring>

#include "tutti/tutti.h"

template <class F>
static bool refused(const char* what, F make) {
  try {
    make();
  } catch (const tutti::UsageError& error) {
    if (std::strstr(error.what(), "tutti::run")) return true;
    std::printf("%s: %s\n", what, error.what());
  }
  return false;
}

int main() {
  tutti::ThreadedSession(2).sync_all();
  const bool fine = refused("create", [] { tutti::Session::create(); }) && refused("process", [] { tutti::ProcessSession(2); }) &&
                    refused("socket", [] { tutti::SocketSession(1, 1, 1, "localhost", 0); });
  return fine ? 0 : 1;
}

#include "core/exit_codes.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

namespace tutti::detail {

void end_process(int code) {
  try {
    std::thread([code] {  // a stuck thread may hold a stream's lock
      std::this_thread::sleep_for(std::chrono::seconds(1));
      _exit(code);
    })
        .detach();
    std::fflush(nullptr);
  } catch (const std::exception&) {  // no thread to be had
  }
  _exit(code);
}

}  // namespace tutti::detail

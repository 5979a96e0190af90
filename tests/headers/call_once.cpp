#include <mutex>

/// 1, if std::call_once works here.
extern "C" int tutti_test_call_once() {
  std::once_flag flag;
  int calls = 0;
  std::call_once(flag, [&] { ++calls; });
  return calls;
}

// Where an exception that a worker function let out was thrown.
#pragma once

#include <cxxabi.h>

#include <string>
#include <utility>

namespace tutti::detail {

#ifdef __GLIBCXX__
using ThreadEnds =
    abi::__forced_unwind;  ///< passes when pthread_exit() or pthread_cancel() ends the thread; a handler must throw it on
#else
struct ThreadEnds {};
#endif

/// Nothing is one: a handler for it never runs. But while the search for a handler passes it, the stack of the throw still
/// stands, and its addresses are kept (traceback.cpp).
class Passing {
 public:
  virtual ~Passing();  // never defined: the compiler leaves the type's description to us
};

/// Marks where tracebacks of this thread end.
class TracebackEnd {
 public:
  explicit TracebackEnd(const void* frame);
  ~TracebackEnd();

 private:
  const void* outer_;
};

/// Calls f; for an exception out of it take_traceback() says where it was thrown. Costs nothing otherwise.
template <class F>
[[gnu::noinline]] auto traced(F&& f) {
  const TracebackEnd end(__builtin_frame_address(0));
  try {
    return std::forward<F>(f)();
  } catch (const Passing&) {
    throw;
  }
}

/// Of the last exception out of traced() on this thread: a line a frame, the innermost first, "  my_f(int) at my.cpp:42". Empty
/// when none is known. Reads debug information where there is any (the first time: some ms).
std::string take_traceback() noexcept;
void forget_traceback();

}  // namespace tutti::detail

// A job that is asked to make room saves what it has and ends.
#include <gtest/gtest.h>

#include <csignal>

#include "support/session_kinds.h"

namespace {

using namespace tutti;
using namespace tutti_test;

const bool registered = register_global_func("preempt.rank", [] { return worker::id(); });

TEST(Preemption, the_hook_runs_at_the_next_call_and_the_session_ends) {
  int saved = -1, times = 0;
  {
    Session s = make_session();
    auto rank = s.get_global_func("preempt.rank");
    DRef ids = rank();
    s.on_preemption([&] {
      ++times;
      saved = static_cast<int>(ids.debug_get_from_remote(workers() - 1).as<int64_t>());  // the session works
    });
    s.sync_all();
    EXPECT_EQ(times, 0);
    raise(SIGUSR1);
    EXPECT_THROW(rank(), Preempted);
    EXPECT_EQ(saved, workers() - 1);
    EXPECT_THROW(s.sync_all(), UsageError);  // it is over
  }
  // a session whose hook fails lives on, and so does one without
  Session s = make_session();
  auto rank = s.get_global_func("preempt.rank");
  s.sync_all();
  s.on_preemption([] { throw std::runtime_error("the disk is full"); });
  EXPECT_EQ(message_of<std::runtime_error>([&] { s.sync_all(); }), "the disk is full");
  EXPECT_EQ(rank().debug_get_from_remote(0), Value(0));
  s.on_preemption([&] { rank(), s.get_global_func("preempt.none"); });  // what nobody waited for is logged
  EXPECT_THROW(s.shutdown(), Preempted);
  EXPECT_EQ(times, 1);
}

TEST(Preemption, while_a_program_is_recorded) {
  Session s = make_session();
  const auto rank = s.get_global_func("preempt.rank");
  auto recording = s.record();
  const DRef id = rank();
  raise(SIGUSR1);
  s.on_preemption([] { throw std::runtime_error("the disk is full"); });
  EXPECT_EQ(message_of<std::runtime_error>([&] { rank(); }), "the disk is full");
  rank();  // the recording lives on
  Value seen;
  s.on_preemption([&] { seen = rank().debug_get_from_remote(0); });  // its calls are not steps
  EXPECT_THROW(rank(), Preempted);
  EXPECT_EQ(seen, Value(0));
  EXPECT_THROW(recording.finish(), UsageError);
}

}  // namespace

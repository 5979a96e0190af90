// The words of TUTTI_FAULT.
#include "control/worker/fault.h"

#include <gtest/gtest.h>

#include "tutti/error.h"

namespace {

using namespace tutti;
using namespace tutti::detail;

TEST(Fault, words) {
  const auto faults =
      parse_faults("kill worker=1 command=20 in=transfer; throw every=97 ;delay ms=5 command=3 in=channel;exit code=7 command=1");
  ASSERT_EQ(faults.size(), 4u);
  EXPECT_EQ(faults[0].what, Fault::What::kKill);
  EXPECT_EQ(faults[0].where, Fault::Where::kTransfer);
  EXPECT_EQ(faults[0].worker, 1);
  EXPECT_EQ(faults[0].command, 20u);
  EXPECT_EQ(faults[1].what, Fault::What::kThrow);
  EXPECT_EQ(faults[1].every, 97u);
  EXPECT_FALSE(faults[1].worker);
  EXPECT_EQ(faults[2].length, std::chrono::milliseconds(5));
  EXPECT_EQ(faults[2].where, Fault::Where::kChannel);
  EXPECT_EQ(faults[3].code, 7);
  EXPECT_TRUE(parse_faults("").empty());
  for (const char* wrong :
       {"explode command=1", "kill", "kill command=0", "kill command=1 every=2", "kill command=x", "kill command=-1",
        "kill command=1 in=bed", "kill command=1 when=now", "kill command", ";", "kill command=99999999999"})
    EXPECT_THROW(parse_faults(wrong), UsageError) << wrong;
}

}  // namespace

// What redistributions send, counted in the communicators, is what explain says. Tensors here are small: their blocks are packed.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collective/ccl.h"
#include "distributed/party.h"
#include "distributed/random_infos.h"
#include "distributed/transition.h"
#include "tutti/session.h"

namespace {

using namespace tutti;
using namespace tutti::detail;
using namespace tutti::distributed;

std::atomic<int64_t> sent{0};

/// "local", and counts what each member sends to others.
class Counting final : public tutti::detail::Communicator {
 public:
  explicit Counting(const Making& making) : inner_(find_ccl("local", making.plane, making.members).make(making)) {}
  void start(const Operation& o) override {
    const auto members = static_cast<int64_t>(o.workers.size()), item = int64_t{o.src.dtype.size_bytes()};
    if (o.op == CollectiveOp::kAllToAllV)
      sent += item *
              (std::accumulate(o.counts.begin(), o.counts.begin() + members, int64_t{0}) - o.counts[static_cast<size_t>(o.rank)]);
    else if (o.op == CollectiveOp::kAllToAll) sent += o.src.size_bytes() / members * (members - 1);
    else if (o.op == CollectiveOp::kAllgather) sent += o.src.size_bytes() * (members - 1);
    else if (o.op == CollectiveOp::kBroadcast) sent += o.rank == o.root ? o.src.size_bytes() * (members - 1) : 0;
    else if (o.op != CollectiveOp::kBarrier && o.op != CollectiveOp::kSplit) sent += int64_t{1} << 40;  // none of redistribute's
    inner_->start(o);
  }
  std::string poll_error() override { return inner_->poll_error(); }
  void abort() noexcept override { inner_->abort(); }

 private:
  std::unique_ptr<tutti::detail::Communicator> inner_;
};

/// Redistributions of random tensors, whose bytes are counted and whose values are looked at.
void check_traffic(uint32_t seed, int cases) {
  add_ccl({.name = "counting",
           .device_type = dl::kCPU,
           .make = [](const Making& making) -> std::unique_ptr<tutti::detail::Communicator> {
             return std::make_unique<Counting>(making);
           }});
  ThreadedSession session(8);
  session.init_ccl("counting");
  tutti_test::RandomInfos random(seed);
  int64_t total = 0;
  for (int i = 0; i < cases; ++i) {
    const Shape shape = random.shape();
    const DTensorStructInfo from = random.info(shape), to = random.info(shape);
    std::vector<int32_t> values(static_cast<size_t>(element_count(shape)));
    std::iota(values.begin(), values.end(), 1);
    const Tensor array = Tensor::from<int32_t>(std::span<const int32_t>(values), shape);
    const DTensor tensor = distribute(session, array, from.device_mesh(), from.placement());
    session.sync_all();
    sent = 0;
    const DTensor moved = tensor.redistribute(to.placement(), to.device_mesh());
    session.sync_all();
    EXPECT_EQ(sent.load(), bytes_moved(from, to)) << explain(from, to);
    total += sent;
    const Tensor all = moved.full();
    const auto got = all.values<int32_t>();
    EXPECT_TRUE(std::ranges::equal(got, values)) << explain(from, to);
  }
  EXPECT_GT(total, 20 * cases);
}

TEST(Traffic, is_what_explain_says) { check_traffic(7, 500); }

TEST(Traffic, of_many_rounds_is_the_same) {
  const int64_t before = std::exchange(round_bytes, 40);
  check_traffic(8, 500);  // others: what workers do is kept
  round_bytes = before;
}

}  // namespace

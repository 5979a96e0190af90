#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "control/channel.h"
#include "control/exchange.h"

namespace tutti {

/// Workers are threads of this process.
class ThreadChannel final : public SegmentChannel {
 public:
  ThreadChannel(const Layout& layout, Exchange& exchange);
  ~ThreadChannel() override { close(); }
  void close() noexcept override { threads_.clear(); }

 private:
  std::vector<std::jthread> threads_;  // joined by their destructor
};

}  // namespace tutti

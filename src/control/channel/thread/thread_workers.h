#pragma once

#include <memory>
#include <vector>

#include "control/channel/segment_workers.h"
#include "control/wire/exchange.h"
#include "control/worker/worker_thread.h"

namespace tutti::detail {

/// Workers are threads of this process.
class ThreadWorkers final : public SegmentWorkers {
 public:
  ThreadWorkers(const Layout& layout, Exchange& exchange);
  ~ThreadWorkers() override { close(); }
  void close() noexcept override;
  void give_up(std::string_view why) noexcept override;

 private:
  bool all_end_within(std::chrono::milliseconds limit);
  std::vector<WorkerThread> threads_;  // of workers 1, 2, ...
};

}  // namespace tutti::detail

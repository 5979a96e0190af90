#pragma once

#include <chrono>
#include <vector>

#include "control/channel/node/process_pool.h"
#include "control/channel/segment_workers.h"
#include "control/wire/exchange.h"

namespace tutti::detail {

/// Workers are processes of this machine; worker 0 is a thread of the controller's.
class ProcessWorkers final : public SegmentWorkers {
 public:
  ProcessWorkers(const Layout& layout, Exchange& exchange, std::chrono::milliseconds start_timeout);
  ~ProcessWorkers() override { close(); }
  void resume() noexcept override;
  void close() noexcept override;
  void give_up(std::string_view why) noexcept override;

 private:
  void check_alive() override;
  void kill_all(std::string_view why) noexcept;
  std::vector<WorkerProcess> processes_;  // of workers 1, 2, ...
};

}  // namespace tutti::detail

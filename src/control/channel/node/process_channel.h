#pragma once

#include <chrono>
#include <vector>

#include "control/channel/node/process_pool.h"
#include "control/channel/segment_channel.h"
#include "control/wire/exchange.h"

namespace tutti {

/// Workers are processes of this machine; worker 0 is a thread of the controller's.
class ProcessChannel final : public SegmentChannel {
 public:
  ProcessChannel(const Layout& layout, Exchange& exchange, std::chrono::milliseconds start_timeout);
  ~ProcessChannel() override { close(); }
  void check_alive() override;
  void resume() noexcept override;
  void close() noexcept override;
  void give_up(std::string_view why) noexcept override;

 private:
  void kill_all(std::string_view why) noexcept;
  std::vector<WorkerProcess> processes_;  // of workers 1, 2, ...
};

}  // namespace tutti

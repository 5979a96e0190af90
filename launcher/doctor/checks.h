// What `tutti doctor` looks at. Each check adds what it finds, with the way to mend it.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "run/options.h"

namespace tutti::launcher {

enum class Level { kOk, kWarning, kProblem };

struct Finding {
  std::string check;  ///< "shared memory"
  Level level = Level::kOk;
  std::string text;  ///< what there is
  std::string fix;   ///< what to do; empty if all is well
};
class Findings {
 public:
  explicit Findings(std::function<void(const Finding&)> tell) : tell_(std::move(tell)) {}
  void push_back(Finding finding) {  ///< told at once: the next check may take its time
    all_.push_back(std::move(finding));
    tell_(all_.back());
  }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }

 private:
  std::function<void(const Finding&)> tell_;
  std::vector<Finding> all_;
};

void check_shared_memory(Findings& findings);
void check_cpus(Findings& findings, int ranks);             ///< 0: as many as there are
void check_user(Findings& findings);                        ///< root, folders, limits
void check_gpus(Findings& findings);                        ///< as the bus, the driver, and the variables have them; NCCL
void check_mpi(Findings& findings, const RunOptions& job);  ///< starts two ranks
void check_slurm(Findings& findings);
void check_hosts(Findings& findings, const RunOptions& job);  ///< starts ranks on each, and lets each two exchange messages

}  // namespace tutti::launcher

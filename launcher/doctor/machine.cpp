// Memory, CPUs and limits of this machine.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "core/env.h"
#include "core/handle.h"
#include "doctor/checks.h"
#include "topology/bind.h"

namespace tutti::launcher {
using namespace detail;
namespace {

constexpr uint64_t kMiB = 1 << 20;

std::string mib(uint64_t bytes) {
  return bytes >= 10240 * kMiB ? fmt::format("{} GiB", bytes / kMiB / 1024) : fmt::format("{} MiB", bytes / kMiB);
}

/// Whether a file of 1 MiB can be made there, and why not.
std::string try_writing(const std::string& folder) {
  std::string name = folder + "/tutti-doctor-XXXXXX";
  const Fd file(mkostemp(name.data(), O_CLOEXEC));
  if (file.get() < 0) return std::strerror(errno);
  unlink(name.c_str());
  const std::vector<char> bytes(kMiB, 'x');
  const ssize_t n = write(file.get(), bytes.data(), bytes.size());
  return n == static_cast<ssize_t>(bytes.size()) ? "" : n < 0 ? std::strerror(errno) : "no space for 1 MiB";
}

struct Space {
  uint64_t all = 0, free = 0;
  explicit Space(const std::string& folder) {
    struct statvfs about {};
    if (statvfs(folder.c_str(), &about) == 0) all = about.f_blocks * about.f_frsize, free = about.f_bavail * about.f_frsize;
  }
};

std::string line_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

/// CPUs that are threads of one core count once.
size_t cores_of(const topology::IndexSet& cpus) {
  std::set<std::string> cores;
  for (const int cpu : cpus) {
    const std::string siblings = line_of(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
    cores.insert(siblings.empty() ? std::to_string(cpu) : siblings);
  }
  return cores.size();
}

/// How many CPUs' time the control group, or one above it, gives (`docker run --cpus`); nothing: as much as there is.
std::optional<double> cpu_quota() {
  std::optional<double> least;
  const auto note = [&least](double quota, double period) {
    if (quota > 0 && period > 0) least = std::min(least.value_or(quota / period), quota / period);
  };
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // 4:cpu,cpuacct:/path, or 0::/path
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool is_first_version = controllers.find(",cpu,") != std::string::npos;
    if (!is_first_version && controllers != ",,") continue;
    const std::filesystem::path top = is_first_version ? "/sys/fs/cgroup/cpu" : "/sys/fs/cgroup";
    for (std::filesystem::path at = std::filesystem::path(line.substr(second + 1)).relative_path();; at = at.parent_path()) {
      if (is_first_version)
        note(std::atof(line_of(top / at / "cpu.cfs_quota_us").c_str()),
             std::atof(line_of(top / at / "cpu.cfs_period_us").c_str()));
      else if (const std::string max = line_of(top / at / "cpu.max"); max.find(' ') != std::string::npos)
        note(std::atof(max.c_str()), std::atof(max.c_str() + max.find(' ')));  // "max 100000": no limit
      if (at.empty()) break;
    }
  }
  return least;
}

}  // namespace

void check_shared_memory(Findings& findings) {
  constexpr uint64_t kEnough =
      256 * kMiB;  // Open MPI takes 4 MiB a rank, NCCL some 10 a pair of GPUs; containers have 64 unless told
  const std::string folder = "/dev/shm",
                    enlarge = "mount -o remount,size=2G /dev/shm; for a container: docker run --shm-size=2g, or --ipc=host";
  if (const std::string why = try_writing(folder); !why.empty())
    return findings.push_back({"shared memory", Level::kProblem,
                               fmt::format("{} can't be written: {}; ranks of a node can't share memory", folder, why),
                               "mount -t tmpfs -o mode=1777,size=2G tmpfs /dev/shm; files left in a full one may be removed"});
  const Space space(folder);
  const std::string text = fmt::format("{}: {}, {} free", folder, mib(space.all), mib(space.free));
  if (space.all < kEnough) findings.push_back({"shared memory", Level::kProblem, text + "; MPI and NCCL need more", enlarge});
  else if (space.free < kEnough)
    findings.push_back(
        {"shared memory", Level::kProblem, text,
         "ls -l /dev/shm: what killed jobs have left (vader_segment.*, nccl-*) may be removed; or enlarge it: " + enlarge});
  else findings.push_back({"shared memory", Level::kOk, text, ""});
  const Fd file(memfd_create("tutti doctor", MFD_CLOEXEC));
  if (file.get() < 0)
    findings.push_back({"memfd", Level::kProblem,
                        fmt::format("memfd_create: {}; tutti's ranks share tensors by it", std::strerror(errno)),
                        "a container's seccomp profile has to allow it"});
}

void check_cpus(Findings& findings, int ranks) {
  const size_t granted = topology::granted().cpus.size();
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  const std::string text = fmt::format("{} of {} CPUs may be used: {}", granted, online, to_string(topology::granted().cpus));
  if (const auto quota = cpu_quota(); quota && *quota < static_cast<double>(granted))
    findings.push_back({"CPU time", *quota < 2 ? Level::kProblem : Level::kWarning,
                        fmt::format("the control group gives {:.3g} CPUs' time to {} CPUs: ranks that wait spin, and use it up",
                                    *quota, granted),
                        "ask for more (docker run --cpus, Kubernetes' limits.cpu), or for whole CPUs (--cpuset-cpus)"});
  if (cores_of(topology::granted().cpus) == 1 && online > 1)
    findings.push_back({"CPUs", Level::kProblem, text + "; all threads of all ranks take turns on one core",
                        "this shell is bound (taskset, control group, batch system): ask for more (#SBATCH --cpus-per-task=8, "
                        "and for srun by itself -c 8 again), or start without mpirun --bind-to core"});
  else findings.push_back({"CPUs", Level::kOk, text, ""});
  if (ranks > 0 && static_cast<size_t>(ranks) > granted)
    findings.push_back({"oversubscription", Level::kWarning,
                        fmt::format("{} ranks on {} {}: ranks that wait spin, and take the time of those that work", ranks,
                                    granted, granted == 1 ? "CPU" : "CPUs"),
                        "fewer ranks a node, or more nodes; mpirun itself refuses without --oversubscribe, tutti run by mpirun "
                        "does not, srun refuses more tasks than the allocation has CPUs for"});
}

void check_user(Findings& findings) {
  if (geteuid() == 0 && !(env_string("OMPI_ALLOW_RUN_AS_ROOT") && env_string("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")))
    findings.push_back({"root", Level::kWarning, "you are root: plain mpirun refuses to start (tutti run does not)",
                        "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1, or be another user"});
  const std::string folder = env_string("TMPDIR").value_or("/tmp");
  constexpr size_t kLongest = 80;  // sockets' names have 108 bytes, of which Open MPI wants some
  if (const std::string why = try_writing(folder); !why.empty())
    findings.push_back({"temporary folder", Level::kProblem,
                        fmt::format("{} can't be written: {}; Open MPI keeps its sockets there", folder, why),
                        "export TMPDIR=FOLDER, one on a local disk"});
  else if (folder.size() > kLongest)
    findings.push_back({"temporary folder", Level::kWarning,
                        fmt::format("{} has a name of {} bytes: too long for sockets", folder, folder.size()),
                        "export TMPDIR=/tmp"});
  else findings.push_back({"temporary folder", Level::kOk, fmt::format("{}: {} free", folder, mib(Space(folder).free)), ""});
  rlimit files{};
  constexpr rlim_t kFiles = 1024;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < kFiles)
    findings.push_back({"open files", Level::kWarning,
                        fmt::format("a process may open {} files; connections of large jobs are files", files.rlim_cur),
                        "ulimit -n 4096"});
}

}  // namespace tutti::launcher

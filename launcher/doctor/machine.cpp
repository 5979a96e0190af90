// Memory, CPUs and limits of this machine.
#include <fmt/format.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>

#include "core/env.h"
#include "core/handle.h"
#include "doctor/checks.h"
#include "topology/bind.h"

namespace tutti::launcher {
namespace {

constexpr uint64_t kMiB = 1 << 20;

std::string mib(uint64_t bytes) { return bytes >= 10240 * kMiB ? fmt::format("{} GiB", bytes / kMiB / 1024) : fmt::format("{} MiB", bytes / kMiB); }

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

}  // namespace

void check_shared_memory(Findings& findings) {
  constexpr uint64_t kEnough = 256 * kMiB;  // Open MPI takes 4 MiB a rank, NCCL some 10 a pair of GPUs; containers have 64 unless told
  const std::string folder = "/dev/shm", enlarge = "mount -o remount,size=2G /dev/shm; for a container: docker run --shm-size=2g, or --ipc=host";
  if (const std::string why = try_writing(folder); !why.empty())
    return findings.push_back({"shared memory", Level::kProblem, fmt::format("{} can't be written: {}; ranks of a node can't share memory", folder, why),
                               "mount -t tmpfs -o mode=1777,size=2G tmpfs /dev/shm; files left in a full one may be removed"});
  const Space space(folder);
  const std::string text = fmt::format("{}: {}, {} free", folder, mib(space.all), mib(space.free));
  if (space.all < kEnough) findings.push_back({"shared memory", Level::kProblem, text + "; MPI and NCCL need more", enlarge});
  else if (space.free < kEnough) findings.push_back({"shared memory", Level::kProblem, text, "ls -l /dev/shm: what killed jobs have left (vader_segment.*, nccl-*) may be removed; or enlarge it: " + enlarge});
  else findings.push_back({"shared memory", Level::kOk, text, ""});
  const Fd file(memfd_create("tutti doctor", MFD_CLOEXEC));
  if (file.get() < 0) findings.push_back({"memfd", Level::kProblem, fmt::format("memfd_create: {}; tutti's ranks share tensors by it", std::strerror(errno)), "a container's seccomp profile has to allow it"});
}

void check_cpus(Findings& findings, int ranks) {
  const size_t granted = topology::granted().cpus.size();
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  const std::string text = fmt::format("{} of {} CPUs may be used: {}", granted, online, to_string(topology::granted().cpus));
  if (granted == 1 && online > 1)
    findings.push_back({"CPUs", Level::kProblem, text + "; all threads of all ranks take turns on it",
                        "this shell is bound (taskset, control group, batch system): ask for more (#SBATCH --cpus-per-task=8, and for srun by itself -c 8 again), or start without mpirun --bind-to core"});
  else findings.push_back({"CPUs", Level::kOk, text, ""});
  if (ranks > 0 && static_cast<size_t>(ranks) > granted)
    findings.push_back({"oversubscription", Level::kWarning, fmt::format("{} ranks on {} {}: ranks that wait spin, and take the time of those that work", ranks, granted, granted == 1 ? "CPU" : "CPUs"),
                        "fewer ranks a node, or more nodes; mpirun itself refuses without --oversubscribe, tutti run by mpirun does not, srun refuses more tasks than the allocation has CPUs for"});
}

void check_user(Findings& findings) {
  if (geteuid() == 0 && !(env_string("OMPI_ALLOW_RUN_AS_ROOT") && env_string("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")))
    findings.push_back({"root", Level::kWarning, "you are root: plain mpirun refuses to start (tutti run does not)", "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1, or be another user"});
  const std::string folder = env_string("TMPDIR").value_or("/tmp");
  constexpr size_t kLongest = 80;  // sockets' names have 108 bytes, of which Open MPI wants some
  if (const std::string why = try_writing(folder); !why.empty())
    findings.push_back({"temporary folder", Level::kProblem, fmt::format("{} can't be written: {}; Open MPI keeps its sockets there", folder, why), "export TMPDIR=FOLDER, one on a local disk"});
  else if (folder.size() > kLongest)
    findings.push_back({"temporary folder", Level::kWarning, fmt::format("{} has a name of {} bytes: too long for sockets", folder, folder.size()), "export TMPDIR=/tmp"});
  else findings.push_back({"temporary folder", Level::kOk, fmt::format("{}: {} free", folder, mib(Space(folder).free)), ""});
  rlimit files{};
  constexpr rlim_t kFiles = 1024;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < kFiles)
    findings.push_back({"open files", Level::kWarning, fmt::format("a process may open {} files; connections of large jobs are files", files.rlim_cur), "ulimit -n 4096"});
}

}  // namespace tutti::launcher

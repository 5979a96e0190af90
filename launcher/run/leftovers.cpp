#include "run/leftovers.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "core/env.h"

namespace tutti::launcher {
using namespace detail;
namespace {

namespace fs = std::filesystem;

template <class Each>
void for_each_process(const Each& each) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored))
    if (const std::string name = entry.path().filename(); name.find_first_not_of("0123456789") == std::string::npos)
      each(entry.path());
}

struct Stat {
  char state = 0;
  pid_t parent = 0;
  explicit Stat(const fs::path& process) {
    std::ifstream stat(process / "stat");
    std::string text;
    std::getline(stat, text, '\0');             // says nothing of a process that has just ended; iterators throw
    const size_t name_ends = text.rfind(") ");  // "pid (name) state parent ..."
    if (name_ends == std::string::npos || text.size() < name_ends + 4) return;
    state = text[name_ends + 2];
    parent = std::atoi(text.c_str() + name_ends + 4);
  }
};

bool is_mapped(const std::string& file) {
  bool found = false;
  for_each_process([&](const fs::path& process) {
    const pid_t id = std::atoi(process.filename().c_str());
    found = found || waits_in_kernel(id) || maps(id, file);  // to ask such a process may take for ever
  });
  return found;
}

}  // namespace

std::map<pid_t, std::vector<pid_t>> children_of_all() {
  std::map<pid_t, std::vector<pid_t>> all;
  for_each_process([&](const fs::path& process) {
    const Stat stat(process);
    if (stat.state != 'Z') all[stat.parent].push_back(static_cast<pid_t>(std::stol(process.filename())));
  });
  return all;
}

std::vector<pid_t> children(pid_t parent) { return children_of_all()[parent]; }

bool waits_in_kernel(pid_t process) {
  std::error_code ignored;
  for (const auto& thread : fs::directory_iterator(fmt::format("/proc/{}/task", process), ignored))
    if (Stat(thread.path()).state == 'D') return true;
  return false;
}

bool maps(pid_t process, const std::string& part_of_name) {
  std::ifstream maps(fmt::format("/proc/{}/maps", process));
  for (std::string line; std::getline(maps, line);)
    if (line.find(part_of_name) != std::string::npos) return true;
  return false;
}

std::string variable_of(pid_t process, const std::string& name) {
  std::ifstream environment(fmt::format("/proc/{}/environ", process));
  for (std::string entry; std::getline(environment, entry, '\0');)
    if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
  return {};
}

void sweep_segments(fs::file_time_type begun) {
  std::error_code ignored;
  std::vector<std::string> unused;
  for (const auto& entry : fs::directory_iterator("/dev/shm", ignored)) {
    struct stat about {};
    const std::string file = entry.path();
    const std::string name = entry.path().filename();
    const bool is_open_mpi_s = name.starts_with("vader_segment.") || name.starts_with("sm_segment.");  // until 4, since 5
    if (!is_open_mpi_s || stat(file.c_str(), &about) != 0 || about.st_uid != getuid()) continue;
    if (fs::last_write_time(entry.path(), ignored) >= begun && !is_mapped(file)) unused.push_back(file);
  }
  if (unused.empty()) return;
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // another job's, just made, is about to be mapped
  for (const std::string& file : unused)
    if (!is_mapped(file)) fs::remove(file, ignored);
}

void sweep_session(pid_t mpirun) {
  std::error_code ignored;
  fs::path base = "/tmp";
  for (const char* name : {"OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_tmpdir_base", "TMPDIR", "TEMP", "TMP"})
    if (const auto folder = env_string(name)) {
      base = *folder;
      break;
    }
  const std::string& host = host_name();
  for (const std::string& name : {host, host.substr(0, host.find('.'))}) {
    const fs::path session = base / fmt::format("ompi.{}.{}", name, getuid());
    fs::remove_all(session / fmt::format("pid.{}", mpirun), ignored);
    fs::remove(session, ignored);                                                             // if that was the last
    fs::remove_all(base / fmt::format("prterun.{}.{}.{}", name, mpirun, getuid()), ignored);  // of Open MPI 5
  }
}

}  // namespace tutti::launcher

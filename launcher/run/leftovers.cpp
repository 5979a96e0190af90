#include "run/leftovers.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

namespace tutti::launcher {
namespace {

namespace fs = std::filesystem;

template <class Each>
void for_each_process(const Each& each) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored))
    if (const std::string name = entry.path().filename(); name.find_first_not_of("0123456789") == std::string::npos) each(entry.path());
}

bool is_mapped(const std::string& file) {
  bool found = false;
  for_each_process([&](const fs::path& process) {
    std::ifstream maps(process / "maps");
    for (std::string line; !found && std::getline(maps, line);) found = line.ends_with(file);
  });
  return found;
}

}  // namespace

std::vector<pid_t> children() {
  std::vector<pid_t> all;
  const std::string mine = std::to_string(getpid());
  for_each_process([&](const fs::path& process) {
    std::ifstream stat(process / "stat");
    const std::string text((std::istreambuf_iterator<char>(stat)), {});
    const size_t name_ends = text.rfind(") ");  // "pid (name) state parent ..."
    if (name_ends == std::string::npos || text.size() < name_ends + 4) return;
    const std::string parent = text.substr(name_ends + 4, text.find(' ', name_ends + 4) - name_ends - 4);
    if (parent == mine && text[name_ends + 2] != 'Z') all.push_back(static_cast<pid_t>(std::stol(process.filename())));
  });
  return all;
}

void sweep_segments(fs::file_time_type begun) {
  std::error_code ignored;
  std::vector<std::string> unused;
  for (const auto& entry : fs::directory_iterator("/dev/shm", ignored)) {
    struct stat about {};
    const std::string file = entry.path();
    if (!entry.path().filename().string().starts_with("vader_segment.") || stat(file.c_str(), &about) != 0 || about.st_uid != getuid()) continue;
    if (fs::last_write_time(entry.path(), ignored) >= begun && !is_mapped(file)) unused.push_back(file);
  }
  if (unused.empty()) return;
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // another job's, just made, is about to be mapped
  for (const std::string& file : unused)
    if (!is_mapped(file)) fs::remove(file, ignored);
}

}  // namespace tutti::launcher

#include "run/stacks.h"

#include <elfutils/libdwfl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/demangle.h"
#include "run/leftovers.h"

namespace tutti::launcher {
using namespace detail;
namespace {

struct Call {
  std::string function;
  std::string line;  // "solver.cpp:12"; empty: no debug information
};

/// Without its arguments.
std::string name_of(const char* symbol) {
  const std::string name = demangled(symbol);
  int depth = 0;  // of template arguments, which may have parentheses
  for (size_t i = 0; i < name.size(); ++i) {
    depth += name[i] == '<' ? 1 : name[i] == '>' ? -1 : 0;
    if (name[i] == '(' && depth == 0 && !std::string_view(name).substr(i).starts_with("(anonymous")) return name.substr(0, i);
  }
  return name.substr(0, name.find('@'));  // PMPI_Barrier@@VERSION
}

int add_frame(Dwfl_Frame* state, void* to) {
  Dwarf_Addr address = 0;
  bool is_activation = false;  // else the address is that of the instruction after the call
  if (!dwfl_frame_pc(state, &address, &is_activation)) return DWARF_CB_ABORT;
  const Dwarf_Addr call = is_activation ? address : address - 1;
  Dwfl_Module* module = dwfl_addrmodule(dwfl_thread_dwfl(dwfl_frame_thread(state)), call);
  const char* symbol = module ? dwfl_module_addrname(module, call) : nullptr;
  Call frame{.function = symbol ? name_of(symbol) : "?", .line = {}};
  if (Dwfl_Line* line = module ? dwfl_module_getsrc(module, call) : nullptr) {
    int number = 0;
    if (const char* file = dwfl_lineinfo(line, nullptr, &number, nullptr, nullptr, nullptr))
      frame.line = fmt::format("{}:{}", std::filesystem::path(file).filename().string(), number);
  }
  auto& frames = *static_cast<std::vector<Call>*>(to);
  constexpr size_t kEnough = 100;
  if (frame.function.starts_with("__libc_start") || frames.size() == kEnough) return DWARF_CB_ABORT;
  frames.push_back(std::move(frame));
  return DWARF_CB_OK;
}

struct Thread {
  pid_t id = 0;
  std::vector<Call> frames;  // innermost first, up to main
};

int add_thread(Dwfl_Thread* state, void* to) {
  Thread thread{.id = dwfl_thread_tid(state), .frames = {}};
  dwfl_thread_getframes(state, add_frame, &thread.frames);
  static_cast<std::vector<Thread>*>(to)->push_back(std::move(thread));
  return DWARF_CB_OK;
}

/// Of a process; none if it can't be looked at.
std::vector<Thread> threads_of(pid_t process) {
  static const Dwfl_Callbacks callbacks{.find_elf = dwfl_linux_proc_find_elf,
                                        .find_debuginfo = dwfl_standard_find_debuginfo,
                                        .section_address = nullptr,
                                        .debuginfo_path = nullptr};
  const std::unique_ptr<Dwfl, decltype(&dwfl_end)> dwfl(dwfl_begin(&callbacks), &dwfl_end);
  std::vector<Thread> threads;
  if (!dwfl || dwfl_linux_proc_report(dwfl.get(), process) != 0 || dwfl_report_end(dwfl.get(), nullptr, nullptr) != 0 ||
      dwfl_linux_proc_attach(dwfl.get(), process, false) != 0)
    return threads;
  dwfl_getthreads(dwfl.get(), add_thread, &threads);
  return threads;
}

/// Open MPI jumps out of these two functions of MPI's, which are then in no stack.
std::string name_in_mpi(const std::string& function) {
  if (function == "ompi_mpi_finalize") return "MPI_Finalize";
  return function == "ompi_mpi_init" ? "MPI_Init" : function.starts_with("PMPI_") ? function.substr(1) : function;
}
bool is_mpi(const Call& frame) { return name_in_mpi(frame.function).starts_with("MPI_"); }

bool is_in_mpi(const Thread& thread) { return std::any_of(thread.frames.begin(), thread.frames.end(), is_mpi); }

std::string in_words(const std::vector<Call>& frames) {
  // the outermost call into MPI is what the user has written; what is below it is of no interest
  const auto mpi = std::find_if(frames.rbegin(), frames.rend(), is_mpi);
  auto frame = mpi != frames.rend() ? std::prev(mpi.base()) : frames.begin();
  const bool has_lines = std::any_of(frame, frames.end(), [](const Call& one) { return !one.line.empty(); });
  std::string words;
  constexpr int kShown = 6;
  for (int shown = 0; frame != frames.end() && shown < kShown; ++frame) {
    if (frame->function == "?" || (has_lines && shown > 0 && frame->line.empty()))
      continue;  // libraries between the user's functions
    words += fmt::format("{}{}{}", shown++ > 0 ? " < " : "", name_in_mpi(frame->function),
                         frame->line.empty() ? "" : " (" + frame->line + ")");
  }
  return words;
}

enum class Whereabouts { kInMpi, kElsewhere, kUnknown };

struct Sight {
  Whereabouts place = Whereabouts::kUnknown;
  std::string words;
};

/// What its main thread does, or another that is in MPI.
Sight look_at(pid_t process) {
  if (waits_in_kernel(process))  // to look at it, it would have to stop, and it can't
    return {Whereabouts::kUnknown, "waits in the kernel (state D: a disk, a network file system, a driver)"};
  const auto threads = threads_of(process);
  const auto main = std::find_if(threads.begin(), threads.end(), [&](const Thread& one) { return one.id == process; });
  const auto in_mpi = main != threads.end() && is_in_mpi(*main) ? main : std::find_if(threads.begin(), threads.end(), is_in_mpi);
  std::string words = main == threads.end() ? "" : in_words(main->frames);
  if (words.empty() && in_mpi == threads.end()) return {Whereabouts::kUnknown, "can't be looked at"};
  if (in_mpi != main && in_mpi != threads.end())
    words += fmt::format("{}thread {}: {}", words.empty() ? "" : "; ", in_mpi->id, in_words(in_mpi->frames));
  return {in_mpi == threads.end() ? Whereabouts::kElsewhere : Whereabouts::kInMpi, words};
}

/// The processes below, each before its children.
void add_descendants(const std::map<pid_t, std::vector<pid_t>>& by_parent, pid_t process, std::vector<pid_t>& all) {
  all.push_back(process);
  const auto found = by_parent.find(process);
  if (found == by_parent.end()) return;
  for (const pid_t child : found->second) add_descendants(by_parent, child, all);
}

std::map<int, pid_t> ranks_of(pid_t launcher) {
  std::vector<pid_t> processes;
  add_descendants(children_of_all(), launcher, processes);
  std::map<int, pid_t>
      ranks;  // of a rank's processes the outermost with MPI, else the innermost: shells start programs, programs start helpers
  std::map<int, bool> has_mpi;
  for (const pid_t process : processes) {
    const std::string text = variable_of(process, "OMPI_COMM_WORLD_RANK");
    const int rank = std::atoi(text.c_str());
    if (process == launcher || text.empty() || has_mpi[rank]) continue;
    ranks[rank] = process;
    has_mpi[rank] = maps(process, "/libmpi");
  }
  return ranks;
}

/// What has been seen so far.
struct View {
  std::mutex mutex;
  std::condition_variable changes;
  std::map<int, pid_t> ranks;
  std::map<int, Sight> sights;
  bool knows_ranks = false, is_done = false;
  std::atomic<bool> is_over = false;  ///< nobody waits any more
};

void look_around(pid_t launcher, View& view) {
  auto ranks = ranks_of(launcher);
  const auto note = [&](const auto& change) {
    const std::lock_guard lock(view.mutex);
    change();
    view.changes.notify_all();
  };
  note([&] { view.ranks = ranks, view.knows_ranks = true; });
  for (const auto& [rank, process] : ranks) {
    if (view.is_over) return;
    Sight sight = look_at(process);
    note([&, number = rank] { view.sights[number] = std::move(sight); });
  }
}

std::string in_words(const View& view) {
  if (!view.knows_ranks) return "tutti: the ranks could not be looked at in time\n";
  std::string text, others, unseen;
  bool any_in_mpi = false;
  const auto add = [](std::string& list, int rank) { list += (list.empty() ? "" : ", ") + std::to_string(rank); };
  for (const auto& [rank, process] : view.ranks) {
    const auto found = view.sights.find(rank);
    if (found == view.sights.end()) {
      add(unseen, rank);
      continue;
    }
    const Sight& sight = found->second;
    text += fmt::format("tutti: rank {} (pid {}): {}\n", rank, process, sight.words);
    any_in_mpi |= sight.place == Whereabouts::kInMpi;
    if (sight.place == Whereabouts::kElsewhere) add(others, rank);
  }
  if (!unseen.empty()) text += fmt::format("tutti: there was no time to look at rank {}\n", unseen);
  if (any_in_mpi && !others.empty())
    text += fmt::format("tutti: not in MPI, where others wait: rank {}; look there first\n", others);
  return text;
}

}  // namespace

std::string where_ranks_are(pid_t launcher) {
  unsetenv("DEBUGINFOD_URLS");  // libdw would ask the network
  const auto view = std::make_shared<View>();
  // a thread, that may be left behind where a process does not stop; a process of its own would be none of the ranks' ancestors,
  // which alone may look (Yama)
  std::thread([launcher, view] {
    try {
      look_around(launcher, *view);
    } catch (const std::exception&) {  // what is seen is told
    }
    const std::lock_guard lock(view->mutex);
    view->is_done = true;
    view->changes.notify_all();
  }).detach();
  std::unique_lock lock(view->mutex);
  auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  view->changes.wait_until(lock, until, [&] { return view->knows_ranks || view->is_done; });
  until += std::chrono::milliseconds(100) * view->ranks.size();
  view->changes.wait_until(lock, until, [&] { return view->is_done; });
  view->is_over = true;
  return in_words(*view);
}

}  // namespace tutti::launcher

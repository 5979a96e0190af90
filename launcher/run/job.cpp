#include "run/job.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "core/handle.h"
#include "run/frames.h"
#include "run/leftovers.h"
#include "run/lines.h"
#include "run/process.h"
#include "run/stacks.h"
#include "run/terminal.h"
#include "tutti/error.h"

namespace tutti::launcher {
using namespace detail;
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const char* what) { throw SystemError(fmt::format("{}: {}", what, std::strerror(errno))); }

/// Begin and end of an output of any size.
class Excerpt {
 public:
  void add(std::string_view text) {
    const size_t n = std::min(text.size(), kMost - head_.size());
    head_ += text.substr(0, n);
    tail_ += text.substr(n);
    if (tail_.size() <= 2 * kMost) return;
    left_out_ += tail_.size() - kMost;
    tail_.erase(0, tail_.size() - kMost);
  }
  std::string text() const {
    return head_ + (left_out_ > 0 ? fmt::format("\n... {} bytes are left out ...\n", left_out_) : "") + tail_;
  }

 private:
  static constexpr size_t kMost = 1 << 20;
  std::string head_, tail_;
  size_t left_out_ = 0;
};

/// One stream of the job's: read from the launcher, written with the rank in front, kept in files.
class LauncherStream {
 public:
  /// @param unframed  of mpirun: where the text goes that was in frames, or between them
  LauncherStream(const Command& command, int to, Excerpt* captured, const RunOptions& options, const char* name,
                 Unframer::Sink unframed)
      : by_(command.by),
        by_prrte_(command.by_prrte),
        to_(to),
        captured_(captured),
        is_shown_(!captured || options.shows_captured),
        in_colour_(isatty(to) == 1 && !std::getenv("NO_COLOR")),
        folder_(options.log_folder),
        keeps_logs_(options.keeps_logs),
        name_(name),
        frames_(to == STDOUT_FILENO ? Stream::kOut : Stream::kErr, std::move(unframed)),
        lines_([this](int rank, std::string_view line) { show(rank, line); }) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) fail("pipe");
    read_ = Fd(ends[0]);
    write_ = Fd(ends[1]);
  }
  /// By srun: how the first task that failed has ended; by mpirun: MPI_Abort's code.
  std::optional<int> told() const {
    const bool was_killed = is_consequence_ || told_ == kSignal + SIGKILL;  // by Slurm, which does not always say so
    return said_at_start_ ? said_at_start_ : was_killed && said_by_rank_ ? said_by_rank_ : told_;
  }
  int read_end() const { return read_.get(); }
  int write_end() const { return write_.get(); }
  void close_write_end() { write_.reset(); }

  void pass_on() {
    std::array<char, 1 << 16> part{};
    const ssize_t n = read(read_.get(), part.data(), part.size());
    const std::string_view text(part.data(), static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (by_ == Launcher::kMpirun) frames_.feed(text);
    else add(Unframer::kLauncher, text);  // in lines with a label
    if (n == 0 || (n < 0 && errno != EINTR)) read_.reset();
  }
  void add(int rank, std::string_view text) { lines_.add(rank, text); }
  void finish_frames() { frames_.finish(); }
  void finish_lines() { lines_.finish(); }
  bool may_read() const { return unwritten_.size() < kMostUnwritten; }
  bool is_written() const { return unwritten_.empty(); }
  /// As much as the reader takes without making us wait: a pager may stand still, and signals and the time limit are looked at
  /// all the same.
  void flush() {
    pollfd to{to_, POLLOUT, 0};
    size_t written = 0;
    while (written < unwritten_.size() && poll(&to, 1, 0) > 0) {
      const ssize_t n = write(to_, unwritten_.data() + written, std::min<size_t>(unwritten_.size() - written, PIPE_BUF));
      if (n < 0 && errno != EINTR && errno != EAGAIN) {
        const char* name = to_ == STDOUT_FILENO ? "output" : "error";
        if (errno != EPIPE)
          lose(fmt::format("standard {}: {}", name, std::strerror(errno)));  // else nobody reads any more: their wish
        written = unwritten_.size();
      }
      if (n > 0) written += static_cast<size_t>(n);
      if (n < 0) break;
    }
    unwritten_.erase(0, written);
  }
  int destination() const { return to_; }
  const std::string& lost() const { return lost_; }  ///< what could not be written, and why
  void say(std::string_view words) {                 ///< our own, between the lines of the ranks
    put("", "", words);
    flush();
  }

 private:
  void put(std::string_view prefix, std::string_view shown_prefix, std::string_view words) {
    if (captured_) captured_->add(prefix), captured_->add(words);
    if (is_shown_) unwritten_.append(shown_prefix).append(words);
  }
  void show(int rank, std::string_view line) {
    if (by_ == Launcher::kSrun) rank = take_label(line).value_or(Unframer::kLauncher);
    if (by_ == Launcher::kSrun && !said_at_start_) said_at_start_ = code_of_start(line);  // with a label or without
    if (rank == Unframer::kLauncher) {
      if (by_ == Launcher::kSrun) note_end_of_task(line);
      else if (!told_ && by_prrte_ && tells_of_lost_host(line)) told_ = 1;
      else if (!told_) told_ = by_prrte_ && tells_of_abort(line) ? said_by_rank_ : code_of_abort(line);
      put("", "", std::string(line) + '\n');
      return;
    }
    if ((by_ == Launcher::kSrun || by_prrte_) && !said_by_rank_)
      said_by_rank_ = code_of_abort(line);  // srun may kill it before it exits with that
    constexpr std::array kColours{36, 33, 32, 35, 34, 31, 96, 93, 92, 95, 94, 91};
    const std::string prefix = fmt::format("[{}] ", rank), whole = std::string(line) + '\n';
    put(prefix,
        in_colour_ ? fmt::format("\033[{}m[{}]\033[0m ", kColours[static_cast<size_t>(rank) % kColours.size()], rank) : prefix,
        whole);
    if (folder_.empty()) return;
    const auto path = std::filesystem::path(folder_) / fmt::format("rank-{}.{}", rank, name_);
    auto& file = files_[rank];
    errno = 0;
    std::error_code ignored;
    const bool is_new = !file.is_open();
    if (is_new && std::filesystem::is_fifo(path, ignored))
      return lose(path.string() + " is a FIFO, which would wait for a reader");
    if (is_new) file.open(path, keeps_logs_ ? std::ios::app : std::ios::trunc);
    if (!(file << whole << std::flush)) lose(path.string() + ": " + std::strerror(errno));
  }
  /// Tasks that srun kills because one has called MPI_Abort may be told of before that one.
  void note_end_of_task(std::string_view line) {
    is_aborted_ |= line.starts_with("srun: Job step aborted");
    const auto code = end_of_task(line);
    if (!code || (told_ && !(is_consequence_ && *code < kSignal))) return;
    told_ = code;
    is_consequence_ = is_aborted_ && *code >= kSignal;
  }
  void lose(const std::string& what) {
    if (lost_.empty()) lost_ = what;
  }

  static constexpr size_t kMostUnwritten = 1 << 20;
  static constexpr int kSignal = 128;  // so shells count: 128 and the signal's number

  Launcher by_;
  bool by_prrte_;
  int to_;
  Excerpt* captured_;
  bool is_shown_;
  std::string unwritten_, lost_;
  bool in_colour_;
  std::string folder_;
  bool keeps_logs_;
  const char* name_;
  Unframer frames_;
  Lines lines_;
  Fd read_, write_;
  std::map<int, std::ofstream> files_;
  std::optional<int> told_, said_by_rank_, said_at_start_;
  bool is_aborted_ = false, is_consequence_ = false;
};

constexpr std::array kWatched{SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD};

/// Signals come through a descriptor as long as this lives.
class Signals {
 public:
  Signals() {
    sigset_t watched;
    sigemptyset(&watched);
    struct sigaction now {};
    std::signal(SIGCHLD, SIG_DFL);     // ignored, children would go without a word
    for (const int number : kWatched)  // nohup, and shells for what runs in the background, have some ignored
      if (sigaction(number, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) sigaddset(&watched, number);
    sigprocmask(SIG_BLOCK, &watched, &before_);
    fd_ = Fd(signalfd(-1, &watched, SFD_CLOEXEC));
    if (fd_.get() < 0) fail("signalfd");
    pipe_before_ = std::signal(SIGPIPE, SIG_IGN);  // who reads our output may go, as `head` does
  }
  ~Signals() { restore(); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  void restore() const {
    std::signal(SIGPIPE, pipe_before_);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  int fd() const { return fd_.get(); }
  signalfd_siginfo next() const {
    signalfd_siginfo info{};
    if (read(fd_.get(), &info, sizeof info) != sizeof info) fail("signalfd");
    return info;
  }

 private:
  sigset_t before_{};
  void (*pipe_before_)(int) = SIG_DFL;
  Fd fd_;
};

/// As many open files as the system lets us have: logs are one or two a rank.
class OpenFiles {
 public:
  OpenFiles() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit most{before_.rlim_max, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &most);
  }
  ~OpenFiles() { restore(); }
  OpenFiles(const OpenFiles&) = delete;
  OpenFiles& operator=(const OpenFiles&) = delete;
  void restore() const { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

pid_t start(const Command& command, const RunOptions& options, const Signals& signals, const OpenFiles& files,
            const LauncherStream* out, const LauncherStream* err) {
  const pid_t parent = getpid(), child = fork();
  if (child < 0) fail("fork");
  if (child > 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);
  const bool has_terminal = isatty(STDIN_FILENO) == 1 && options.terminal.empty();  // it reads it, and gets its Ctrl-C
  if (!has_terminal) setpgid(0, 0);
  if (!options.terminal.empty())
    if (const Fd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC)); nothing.get() >= 0) dup2(nothing.get(), STDIN_FILENO);
  if (out) dup2(out->write_end(), STDOUT_FILENO);
  if (err) dup2(err->write_end(), STDERR_FILENO);
  signals.restore();
  files.restore();
  for (const auto& [name, value] : command.variables) setenv(name.c_str(), value.c_str(), 0);
  _exit(become(command.words));
}

class Job {
 public:
  Job(const Command& command, const RunOptions& options, Excerpt* captured) : by_(command.by), options_(options) {
    if (!options.raw) {
      const auto unframed = [this](int rank, Stream stream, std::string_view text) {
        (stream == Stream::kOut ? out_ : err_)->add(rank, text);
      };
      out_.emplace(command, STDOUT_FILENO, captured, options, "out", unframed);
      err_.emplace(command, STDERR_FILENO, captured, options, "err", unframed);
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1);  // whoever loses its parent becomes ours, to be ended
    pid_ = start(command, options, signals_, open_files_, out_ ? &*out_ : nullptr, err_ ? &*err_ : nullptr);
    if (out_) out_->close_write_end(), err_->close_write_end();
    if (options.timeout_s > 0)
      limit_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.timeout_s));
  }

  Outcome wait() {
    while (!status_) {
      step();
      if (limit_ && Clock::now() >= *limit_) pass_limit();
      if (by_ == Launcher::kMpirun && err_ && err_->told()) end_aborted();
    }
    end_descendants();
    for (auto until = Clock::now() + 1s; out_ && (out_->read_end() >= 0 || err_->read_end() >= 0) && Clock::now() < until;) {
      if (!was_asked_ && !(out_->may_read() && err_->may_read())) until = Clock::now() + 1s;  // the reader takes its time
      if (step(); is_given_up_) break;
    }
    if (out_) finish_output();
    const auto patience = Clock::now() + 1s;  // of somebody who wanted the end
    while (out_ && !(out_->is_written() && err_->is_written()) && !is_given_up_ && !(was_asked_ && Clock::now() > patience))
      step();
    int code = WIFEXITED(*status_) ? WEXITSTATUS(*status_) : 128 + WTERMSIG(*status_);
    if (code == 0 && by_ == Launcher::kMpirun && err_ && err_->told()) code = 1;  // MPI_Abort(comm, 0), a lost host: no success
    const bool has_crashed = WIFSIGNALED(*status_);  // as mpirun may when it hears of another MPI_Abort while it ends
    if (code != 0 && err_ && err_->told() && *err_->told() != 0 && (by_ == Launcher::kSrun || terminated_ || has_crashed))
      code = *err_->told();
    bool has_lost_output = false;
    for (const auto* stream : {&out_, &err_})
      if (*stream && !(*stream)->lost().empty()) {
        const std::string words = fmt::format("tutti: output is lost: {}\n", (*stream)->lost());
        write_all(STDERR_FILENO, words);
        has_lost_output |= code == 0;
        if (code == 0) code = 1;
      }
    if (timed_out_) {
      say("tutti: ended by its time limit; signals and exit codes that mpirun tells of since are of that\n");
      return {.code = 124, .asked_by = asked_by_, .timed_out = true, .launcher = pid_};
    }
    constexpr int kSignal = 128;
    const int launchers_own =
        by_ == Launcher::kMpirun ? 1 : kSignal + SIGKILL;  // told to end, neither says how the program would have ended
    if (interrupted_ > 0 && code != 0) code = kSignal + SIGINT;
    else if (asked_by_ != 0 && code == launchers_own) code = kSignal + asked_by_;
    return {.code = code, .asked_by = asked_by_, .timed_out = false, .has_lost_output = has_lost_output, .launcher = pid_};
  }

 private:
  void finish_output() {
    for (auto* stream : {&*out_, &*err_}) stream->finish_frames();
    for (auto* stream : {&*out_, &*err_}) stream->finish_lines(), stream->flush();
  }
  /// Waits for what comes next, at most 200 ms.
  void step() {
    std::array<pollfd, 5> watched{};
    watched.fill({-1, 0, 0});
    watched[0] = {signals_.fd(), POLLIN, 0};
    const bool may_read = out_ && out_->may_read() && err_->may_read();  // frames of both come on one
    for (size_t i = 0; out_ && i < 2; ++i) {
      const LauncherStream& stream = i == 0 ? *out_ : *err_;
      if (may_read || (by_ == Launcher::kSrun && stream.may_read())) watched[1 + i] = {stream.read_end(), POLLIN, 0};
      if (!stream.is_written()) watched[3 + i] = {stream.destination(), POLLOUT, 0};
    }
    if (poll(watched.data(), watched.size(), 200) <= 0) return;
    if (watched[1].revents) out_->pass_on();
    if (watched[2].revents) err_->pass_on();
    if (out_) out_->flush(), err_->flush();
    if (watched[0].revents) receive(signals_.next());
  }

  void receive(const signalfd_siginfo& info) {
    const auto number = static_cast<int>(info.ssi_signo);
    if (number == SIGCHLD) return reap();
    if (number == SIGUSR1 || number == SIGUSR2) return tell(number);
    was_asked_ = true;
    asked_by_ = number;
    if (status_) {  // the job has ended, its output is not read
      is_given_up_ = true;
      return;
    }
    if (number == SIGINT && ++interrupted_ > 1) return kill_all();
    if (number == SIGINT) say("tutti: interrupted, the job ends; once more kills it\n");
    const bool has_it =
        info.ssi_code == SI_KERNEL && isatty(STDIN_FILENO) == 1 && options_.terminal.empty();  // the terminal has sent it to all
    if (!has_it) tell(number == SIGHUP ? SIGTERM : number);
  }
  void reap() {  // not what another thread looks at (where_ranks_are)
    for (int status = 0; const pid_t ended = waitpid(-1, &status, WNOHANG | __WNOTHREAD);) {
      if (ended < 0) return;
      if (ended == pid_) status_ = status;
    }
  }
  void tell(int number) const { kill(pid_, number); }
  void say(std::string_view words) {
    if (err_) err_->say(words);
    else write_all(STDERR_FILENO, words);
  }

  /// What the ranks do, a chance to end, the end.
  void pass_limit() {
    if (!timed_out_) {
      timed_out_ = was_asked_ = true;
      say(fmt::format("tutti: the job has run {} s, its limit (--timeout); it is ended\n{}", options_.timeout_s,
                      by_ == Launcher::kMpirun ? where_ranks_are(pid_) : ""));
      tell(SIGUSR2);  // tutti's programs write a hang report; others end, for which mpirun takes its time
      limit_ = Clock::now() + 3s;
    } else if (!terminated_) {
      terminated_ = true;
      tell(SIGTERM);
      limit_ = Clock::now() + 5s;
    } else {
      limit_.reset();
      kill_all();
    }
  }
  /// mpirun has said that the job is aborted.
  void end_aborted() {
    constexpr auto kPatience = 2s;  // a sound mpirun kills its ranks 1 s after it has asked them to end
    if (!aborted_) aborted_ = Clock::now();
    if (Clock::now() < *aborted_ + kPatience || std::exchange(terminated_, true)) return;
    say(fmt::format("tutti: mpirun still waits {} s after the job was aborted: a host may be cut off; mpirun is killed\n",
                    kPatience.count()));
    kill_all();
  }
  void kill_all() {
    if (by_ == Launcher::kSrun && !std::exchange(terminated_, true))
      return tell(SIGTERM);  // only srun can end what runs on other nodes
    kill(pid_, SIGKILL);
    end_descendants();
  }
  /// Ours by adoption, once their parents have ended.
  void end_descendants() {
    const auto patience = Clock::now() + (by_ == Launcher::kSrun ? 5s : 0s);  // srun's child ends the step when srun is gone
    for (int round = 0; round < 50 || Clock::now() < patience; ++round) {
      reap();
      bool any = false;
      for (const pid_t child : children(getpid()))
        if ((child != pid_ || status_) && std::find(not_ours_.begin(), not_ours_.end(), child) == not_ours_.end()) {
          any = true;
          if (Clock::now() >= patience) kill(child, SIGKILL);
        }
      if (!any && status_) return;
      std::this_thread::sleep_for(20ms);
    }
  }

  Launcher by_;
  RunOptions options_;
  Signals signals_;
  OpenFiles open_files_;
  const std::vector<pid_t> not_ours_ = children(getpid());  // of the shell that has become tutti by exec, say
  std::optional<LauncherStream> out_, err_;
  pid_t pid_ = -1;
  std::optional<int> status_;
  std::optional<Clock::time_point> limit_, aborted_;
  bool timed_out_ = false, terminated_ = false, was_asked_ = false, is_given_up_ = false;
  int interrupted_ = 0, asked_by_ = 0;
};

/// Of the job before, which may have had more ranks.
void remove_logs(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> logs;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string stem = entry.path().stem(), end = entry.path().extension();
    constexpr std::string_view kRank = "rank-";
    if (entry.is_regular_file() && stem.starts_with(kRank) && stem.size() > kRank.size() &&
        stem.find_first_not_of("0123456789", kRank.size()) == std::string::npos && (end == ".out" || end == ".err"))
      logs.push_back(entry.path());
  }
  for (const auto& log : logs) std::filesystem::remove(log);
}

}  // namespace

Outcome run_job(const Command& command, const RunOptions& options, std::string* captured) {
  if (!options.log_folder.empty()) std::filesystem::create_directories(options.log_folder);
  if (!options.log_folder.empty() && !options.keeps_logs) remove_logs(options.log_folder);
  const auto begun = std::filesystem::file_time_type::clock::now();
  Excerpt excerpt;
  std::optional<LentTerminal> lent;
  if (!options.terminal.empty()) lent.emplace();
  const Outcome outcome = Job(command, options, captured ? &excerpt : nullptr).wait();
  if (captured) *captured = excerpt.text();
  if (outcome.code != 0) sweep_segments(begun), sweep_session(outcome.launcher);
  return outcome;
}

}  // namespace tutti::launcher

#include "control/watch/trace_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "control/segment/segment.h"
#include "control/watch/worker_state.h"
#include "core/handle.h"
#include "core/log.h"

namespace tutti::detail {
namespace {

using Json = nlohmann::ordered_json;

const char* name_of(Record::State state) {
  switch (state) {
    case Record::State::kRunning: return "running";
    case Record::State::kDone: return "done";
    case Record::State::kFailed: return "failed";
    case Record::State::kSkipped: return "skipped";
    case Record::State::kConsequence: return "consequence";
  }
  return "?";
}

Json to_json(const Record& r, const TickScale& scale) {
  Json json{{"number", r.number},
            {"command", r.seq},
            {"state", name_of(r.running() ? Record::State::kRunning : r.state)},
            {"begin", scale.wall_ns(r.begin)}};
  if (r.end) json["end"] = scale.wall_ns(r.end);
  if (r.what == Record::What::kStep) {
    json["step"] = r.step;
    json["function"] = r.function;
  } else if (r.what == Record::What::kCommand) {
    json["action"] = to_string(r.action);
    if (!r.function.empty()) json["function"] = r.function;
  } else {
    if (r.agreed) json["agreed"] = scale.wall_ns(r.agreed);
    json["collective"] = to_string(r.signature.op);
    json["communicator"] = r.id.comm;
    json["index"] = r.id.index;
    json["count"] = r.signature.count;
    json["dtype"] = to_string(r.signature.dtype);
    json["op"] = to_string(r.signature.reduce);
    json["root"] = r.signature.root;
  }
  return json;
}

void write_file(const std::string& path, const std::string& text) {
  const std::string part = path + ".part";
  Fd file(::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));  // not one that somebody else has put there
  if (!file) throw SystemError(fmt::format("{}: {}", part, std::strerror(errno)));
  bool is_written = true;
  for (std::string_view rest = text; is_written && !rest.empty();) {
    const ssize_t n = ::write(file.get(), rest.data(), rest.size());
    if (n > 0) rest.remove_prefix(static_cast<size_t>(n));
    else is_written = n < 0 && errno == EINTR;
  }
  is_written = ::close(file.release()) == 0 && is_written;  // NFS tells there that the disk is full
  if (is_written && ::rename(part.c_str(), path.c_str()) == 0) return;
  const int error = errno;
  ::unlink(part.c_str());
  throw SystemError(fmt::format("{}: {}", path, std::strerror(error)));
}

}  // namespace

void encode(Writer& out, const TraceDump& dump) {
  out.put(dump.number);
  out.text(dump.reason);
}

TraceDump decode_trace_dump(Reader& in) {
  TraceDump dump;
  dump.number = in.get<uint32_t>();
  dump.reason = in.text();
  return dump;
}

void write_traces(Segment& segment, const TraceDump& dump) noexcept try {
  const Layout& layout = segment.layout();
  if (layout.trace_folder.empty()) return;
  if (::mkdir(layout.trace_folder.c_str(), 0700) != 0 && errno != EEXIST)
    throw SystemError(fmt::format("{}: {}", layout.trace_folder, std::strerror(errno)));
  const TickScale scale = segment.tick_scale();
  for (int32_t worker : segment.workers()) {
    Json json{{"schema", "tutti.trace/1"},
              {"job", fmt::format("{:016x}", layout.job)},
              {"session", layout.session},
              {"dump", dump.number},
              {"reason", dump.reason},
              {"written", scale.wall_ns(ticks())},
              {"worker", worker},
              {"workers", layout.num_workers},
              {"groups", layout.num_groups},
              {"host", segment.header().host},
              {"pid", segment.slot(worker).pid.load()},
              {"finished", segment.board().member(worker).finished_seq.load()},
              {"records", Json::array()}};
    for (const Record& record : segment.recorder(worker).read()) json["records"].push_back(to_json(record, scale));
    write_file(fmt::format("{}/tutti-{:016x}-{}-{}-worker-{}.json", layout.trace_folder, layout.job, layout.session, dump.number,
                           worker),
               json.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
} catch (const std::exception& error) {
  log(LogLevel::kWarn, "TUTTI_TRACE: {}", error.what());
}

TraceWriter::~TraceWriter() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
    wakes_.notify_one();
  }
  thread_.join();
}

void TraceWriter::write(TraceDump dump) {
  std::lock_guard lock(mutex_);
  dumps_.push_back(std::move(dump));
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  wakes_.notify_one();
}

void TraceWriter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wakes_.wait(lock, [&] { return ends_ || !dumps_.empty(); });
    if (dumps_.empty()) return;
    const TraceDump dump = std::move(dumps_.front());
    dumps_.pop_front();
    lock.unlock();
    write_traces(segment_, dump);
    lock.lock();
  }
}

}  // namespace tutti::detail

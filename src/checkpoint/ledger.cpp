#include "checkpoint/ledger.h"

#include <sys/file.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/log.h"
#include "tutti/error.h"

namespace tutti::detail {
namespace {

/// Of a worker's record. Each has pages of its own: nodes that share a network file system write whole pages.
int64_t place_of(int worker, size_t tensors) {
  constexpr int64_t kPage = 65536;
  return worker * ((static_cast<int64_t>(sizeof(Ledger::Record) + sizeof(uint32_t) * tensors) + kPage - 1) / kPage * kPage);
}

void write_record(const File& file, int worker, size_t tensors, const Ledger::Record& record) {
  file.write(&record, sizeof record, place_of(worker, tensors));
}

/// Locked, and there: another save that looks at it removes one that is not locked yet.
File create_locked(const std::string& path) {
  for (;;) {
    File file = File::create(path);
    int failed = 0;
    do failed = flock(file.fd(), LOCK_EX);  // waits for such a look
    while (failed != 0 && errno == EINTR);
    if (failed != 0) log(LogLevel::kDebug, "no lock on {}: {}", path, std::strerror(errno));
    if (access(path.c_str(), F_OK) == 0) return file;
  }
}

}  // namespace

Ledger::Ledger(std::string path, int workers, size_t tensors)
    : path_(std::move(path)), workers_(workers), tensors_(tensors), lock_(create_locked(path_)) {
  try {
    lock_.resize(std::max<int64_t>(place_of(workers_, tensors_), 1), false);
  } catch (...) {
    unlink(path_.c_str());
    throw;
  }
}

std::vector<Ledger::Record> Ledger::records() const {
  const File file = File::open(path_);  // anew: another node's writes are seen then
  std::vector<Record> records(static_cast<size_t>(workers_));
  for (int worker = 0; worker < workers_; ++worker) {
    Record& record = records[static_cast<size_t>(worker)];
    file.read(&record, sizeof record, place_of(worker, tensors_));
    record.message[sizeof record.message - 1] = '\0';
  }
  return records;
}

std::vector<uint32_t> Ledger::crcs() const {
  const File file = File::open(path_);
  std::vector<uint32_t> all(tensors_), of_one(tensors_);
  for (int worker = 0; worker < workers_; ++worker) {
    file.read(of_one.data(), sizeof(uint32_t) * tensors_, place_of(worker, tensors_) + static_cast<int64_t>(sizeof(Record)));
    for (size_t i = 0; i < tensors_; ++i) all[i] ^= of_one[i];
  }
  return all;
}

void Ledger::set_earlier(const std::string& id) const {
  lock_.write(id.data(), id.size(), place_of(workers_, tensors_));  // at the end
  lock_.sync();
}

std::string Ledger::earlier_of(const std::string& path) {
  std::string id(8, '\0');
  const File file = File::open(path);
  if (file.size() < std::ssize(id)) return {};
  file.read(id.data(), id.size(), file.size() - std::ssize(id));
  return id.find('\0') == std::string::npos ? id : std::string();
}

bool Ledger::is_abandoned(const std::string& path) {
  try {
    const File file = File::open_to_write(path);  // NFS locks no others
    if (flock(file.fd(), LOCK_EX | LOCK_NB) != 0) return false;
    if (file.size() > 0) return true;
    unlink(path.c_str());  // while it is locked: the save that has just made it makes another
    return false;
  } catch (const Error&) {
    return false;
  }
}

void Ledger::note(const std::string& path, int worker, size_t tensors, const Record& record) {
  write_record(File::open_to_write(path), worker, tensors, record);
}

void Ledger::finish(const std::string& path, int worker, int64_t bytes_written, const std::vector<uint32_t>& crcs) {
  const File file = File::open_to_write(path);
  file.write(crcs.data(), sizeof(uint32_t) * crcs.size(), place_of(worker, crcs.size()) + static_cast<int64_t>(sizeof(Record)));
  write_record(file, worker, crcs.size(), {State::kDone, bytes_written, 0, {}});
  file.sync();  // else a full disk may be told to nobody
}

void Ledger::fail(const std::string& path, int worker, size_t tensors, const std::string& message) noexcept {
  Record record{State::kFailed, 0, 0, {}};
  message.copy(record.message, sizeof record.message - 1);
  try {
    note(path, worker, tensors, record);
  } catch (const std::exception& error) {  // the controller learns by what else fails, or does not come
    log(LogLevel::kDebug, "{}", error.what());
  }
}

}  // namespace tutti::detail

#include "checkpoint/ledger.h"

#include <sys/file.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/log.h"
#include "tutti/error.h"

namespace tutti::detail {
namespace {

int64_t place_of(int worker, size_t tensors) {
  return worker * static_cast<int64_t>(sizeof(Ledger::Record) + sizeof(uint32_t) * tensors);
}

}  // namespace

Ledger::Ledger(std::string path, int workers, size_t tensors)
    : path_(std::move(path)), workers_(workers), tensors_(tensors), lock_(File::create(path_)) {
  if (flock(lock_.fd(), LOCK_EX | LOCK_NB) != 0) log(LogLevel::kDebug, "no lock on {}: {}", path_, std::strerror(errno));
  lock_.resize(place_of(workers_, tensors_), false);
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

bool Ledger::is_abandoned(const std::string& path) {
  try {
    return flock(File::open(path).fd(), LOCK_EX | LOCK_NB) == 0;
  } catch (const Error&) {
    return false;
  }
}

void Ledger::note(const std::string& path, int worker, size_t tensors, const Record& record) {
  File::open_to_write(path).write(&record, sizeof record, place_of(worker, tensors));
}

void Ledger::finish(const std::string& path, int worker, int64_t bytes_written, const std::vector<uint32_t>& crcs) {
  File::open_to_write(path).write(crcs.data(), sizeof(uint32_t) * crcs.size(),
                                  place_of(worker, crcs.size()) + static_cast<int64_t>(sizeof(Record)));
  note(path, worker, crcs.size(), {State::kDone, bytes_written, {}});
}

void Ledger::fail(const std::string& path, int worker, size_t tensors, const std::string& message) noexcept {
  Record record{State::kFailed, 0, {}};
  message.copy(record.message, sizeof record.message - 1);
  try {
    note(path, worker, tensors, record);
  } catch (const std::exception& error) {  // the controller learns by what else fails, or does not come
    log(LogLevel::kDebug, "{}", error.what());
  }
}

}  // namespace tutti::detail

#include "control/segment/recorder.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace tutti::detail {
namespace {

// words of a record: 0 begin, 1 end, 2 command, 3 what it is; a command's 4..7 name; a collective's 4 communicator, 5 count, 6
// index and root, 7 agreed; a step's as a command's, its number in the upper half of what it is
constexpr size_t kBegin = 0, kEnd = 1, kSeq = 2, kKind = 3, kName = 4, kComm = 4, kCount = 5, kIndexRoot = 6, kAgreed = 7;
constexpr size_t kNameBytes = sizeof(ShortName);

uint64_t pack(Record::What what, uint8_t kind, ReduceOp reduce = ReduceOp::kSum, DType dtype = {}) {
  return static_cast<uint64_t>(what) | uint64_t{kind} << 16 | static_cast<uint64_t>(reduce) << 24 | uint64_t{dtype.code} << 32 |
         uint64_t{dtype.bits} << 40 | uint64_t{dtype.lanes} << 48;
}
constexpr uint64_t kStateMask = 0xff00;

// Relaxed: a reader may see a record that is half written, or mixed with the one that replaces it. The count, stored after the
// words of a new record and looked at again after they were read, tells.
void put(std::atomic<uint64_t>& word, uint64_t value) { word.store(value, std::memory_order_relaxed); }
uint64_t get(const std::atomic<uint64_t>& word) { return word.load(std::memory_order_relaxed); }

template <class Clock>
int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

}  // namespace

Recorder::Words& Recorder::start(uint64_t& number) {
  number = count_->load(std::memory_order_relaxed) + 1;
  return records_[number % kRecords];
}

void Recorder::begin_command(uint64_t seq, Action action, bool at_once) {
  if (paused_) return;
  auto& words = start(command_);
  kept_.begin = at_once && last_end_ ? last_end_ : ticks();
  kept_.seq = seq;
  kept_.what = pack(Record::What::kCommand, static_cast<uint8_t>(action));
  kept_.name = {};
  put(words[kBegin], kept_.begin);
  put(words[kEnd], 0);
  put(words[kSeq], seq);
  put(words[kKind], kept_.what);
  put(words[kName], 0);
  count_->store(command_, std::memory_order_release);
}

void Recorder::name_function(const ShortName& name) {
  if (paused_) return;
  kept_.name = name;
  if (is_overwritten(command_)) return;  // by its own collectives
  auto& words = records_[command_ % kRecords];
  for (size_t i = 0; i < name.words.size(); ++i) put(words[kName + i], name.words[i]);
}

uint64_t Recorder::add_step(uint64_t seq, uint32_t step, const ShortName& function, uint64_t begin, Record::State state) {
  const uint64_t now = ticks();
  if (paused_) return now;
  uint64_t number = 0;
  auto& words = start(number);
  put(words[kBegin], begin);
  put(words[kEnd], now);
  put(words[kSeq], seq);
  put(words[kKind], static_cast<uint64_t>(Record::What::kStep) | static_cast<uint64_t>(state) << 8 | uint64_t{step} << 32);
  for (size_t i = 0; i < function.words.size(); ++i) put(words[kName + i], function.words[i]);
  count_->store(number, std::memory_order_release);
  return now;
}

void Recorder::begin_collective(const CollectiveId& id, const Signature& s) {
  if (paused_) return;
  auto& words = start(collective_);
  put(words[kBegin], ticks());
  put(words[kEnd], 0);
  put(words[kSeq], id.seq);
  put(words[kKind], pack(Record::What::kCollective, static_cast<uint8_t>(s.op), s.reduce, s.dtype));
  put(words[kComm], id.comm);
  put(words[kCount], static_cast<uint64_t>(s.count));
  put(words[kIndexRoot], uint64_t{id.index} << 32 | static_cast<uint32_t>(s.root));
  put(words[kAgreed], 0);
  count_->store(collective_, std::memory_order_release);
}

void Recorder::agreed() {
  if (!paused_) put(records_[collective_ % kRecords][kAgreed], ticks());
}

/// One that was overwritten by what ran inside of it comes once more: a report tells how it ended.
void Recorder::end_command(Record::State state) {
  if (!paused_ && is_overwritten(command_)) {
    auto& words = start(command_);
    put(words[kBegin], kept_.begin);
    put(words[kEnd], 0);
    put(words[kSeq], kept_.seq);
    put(words[kKind], kept_.what);
    for (size_t i = 0; i < kept_.name.words.size(); ++i) put(words[kName + i], kept_.name.words[i]);
    count_->store(command_, std::memory_order_release);
  }
  end(command_, state);
}

void Recorder::end(uint64_t number, Record::State state) {
  if (paused_) return;
  if (is_overwritten(number)) return;
  auto& words = records_[number % kRecords];
  put(words[kKind], (get(words[kKind]) & ~kStateMask) | static_cast<uint64_t>(state) << 8);
  last_end_ = ticks();
  words[kEnd].store(last_end_, std::memory_order_release);
  __builtin_prefetch(&records_[(number + 1) % kRecords], 1);  // the next one's place has been out of reach for long
}

std::optional<Record> Recorder::read(uint64_t number) const {
  uint64_t w[8];
  for (size_t i = 0; i < 8; ++i) w[i] = get(records_[number % kRecords][i]);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (count_->load(std::memory_order_relaxed) + 1 >= number + kRecords) return std::nullopt;  // it was, or is being, overwritten
  Record r;
  r.what = static_cast<Record::What>(w[kKind] & 0xff);
  r.state = static_cast<Record::State>(w[kKind] >> 8 & 0xff);
  r.number = number;
  r.begin = w[kBegin], r.end = w[kEnd], r.seq = w[kSeq];
  const auto kind = static_cast<uint8_t>(w[kKind] >> 16);
  if (r.what == Record::What::kCommand || r.what == Record::What::kStep) {
    if (r.what == Record::What::kStep) r.step = static_cast<uint32_t>(w[kKind] >> 32);
    else r.action = static_cast<Action>(kind);
    char name[kNameBytes + 1] = {};
    std::memcpy(name, &w[kName], kNameBytes);
    r.function = name;
  } else if (r.what == Record::What::kCollective) {
    r.signature.op = static_cast<CollectiveOp>(kind);
    r.signature.reduce = static_cast<ReduceOp>(w[kKind] >> 24 & 0xff);
    r.signature.dtype = {static_cast<uint8_t>(w[kKind] >> 32), static_cast<uint8_t>(w[kKind] >> 40),
                         static_cast<uint16_t>(w[kKind] >> 48)};
    r.signature.count = static_cast<int64_t>(w[kCount]);
    r.signature.root = static_cast<int32_t>(w[kIndexRoot]);
    r.id = {w[kComm], r.seq, static_cast<uint32_t>(w[kIndexRoot] >> 32)};
    r.agreed = w[kAgreed];
  } else {
    return std::nullopt;
  }
  return r;
}

std::vector<Record> Recorder::read() const {
  std::vector<Record> all;
  const uint64_t count = count_->load(std::memory_order_acquire);
  for (uint64_t number = count > kRecords ? count - kRecords + 1 : 1; number <= count; ++number)
    if (auto record = read(number)) all.push_back(std::move(*record));
  return all;
}

std::optional<Record> Recorder::last(Record::What what) const {
  const uint64_t count = count_->load(std::memory_order_acquire);
  for (uint64_t number = count; number > 0 && count - number < kRecords; --number)
    if (auto record = read(number); record && record->what == what) return record;
  return std::nullopt;
}

TickScale::TickScale()
    : ticks_(detail::ticks()), wall_ns_(now_ns<std::chrono::system_clock>()), steady_ns_(now_ns<std::chrono::steady_clock>()) {}

double TickScale::ns_per_tick() const {
  if (ns_per_tick_ > 0) return ns_per_tick_;
  const uint64_t passed = detail::ticks() - ticks_;
  return passed ? static_cast<double>(now_ns<std::chrono::steady_clock>() - steady_ns_) / static_cast<double>(passed) : 1.0;
}

double TickScale::seconds_between(uint64_t begin, uint64_t end) const {
  return static_cast<double>(static_cast<int64_t>(end - begin)) * ns_per_tick() * 1e-9;
}

int64_t TickScale::wall_ns(uint64_t at) const {
  return wall_ns_ + static_cast<int64_t>(static_cast<double>(static_cast<int64_t>(at - ticks_)) * ns_per_tick());
}

}  // namespace tutti::detail

// Random command programs: calls, drops, collectives, groups, copies, injected exceptions. The same program gives equal
// results and equal errors on threads and on the kind under test; and where parts of it, which run several times, are recorded.
// TUTTI_TEST_PROGRAMS=n (60), TUTTI_TEST_SEED=n (1).
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <regex>

#include "support/session_kinds.h"
#include "tutti/program.h"

namespace {

using namespace tutti;
using namespace tutti_test;

const bool registered = [] {
  register_global_func("diff.value", [](int64_t x) { return x * 10 + worker::id(); });
  register_global_func("diff.add", [](int64_t a, int64_t b) { return a + b; });
  register_global_func("diff.tensor", [](int64_t n, int64_t x) {
    Tensor t = Tensor::empty({n}, kInt64);
    for (int64_t& v : t.values<int64_t>()) v = x++ + 1000 * worker::id();
    return t;
  });
  register_global_func("diff.scale", [](const Tensor& t, int64_t factor) {
    Tensor r = Tensor::like(t);
    for (int64_t i = 0; i < t.element_count(); ++i)
      r.values<int64_t>()[static_cast<size_t>(i)] = t.values<int64_t>()[static_cast<size_t>(i)] * factor;
    return r;
  });
  register_global_func("diff.throw_on", [](int64_t mask, const std::string& text) {
    if (mask >> worker::id() & 1) throw std::runtime_error(text);
    return worker::id();
  });
  register_global_func("diff.two_collectives", [](int64_t mask, int64_t point, const Tensor& t) {
    Tensor r = Tensor::like(t);
    auto maybe_throw = [&](int64_t here) {
      if (point == here && (mask >> worker::id() & 1)) throw std::logic_error("injected");
    };
    maybe_throw(0);
    worker::group().allreduce(t, r);
    maybe_throw(1);
    worker::world().allreduce(r, r, ReduceOp::kMax);
    maybe_throw(2);
    return r;
  });
  // every worker passes t on to the next one, in a ring
  register_global_func("diff.ring", [](int64_t mask, const Tensor& t) {
    const Comm world = worker::world();
    const int next = (world.rank() + 1) % world.size(), previous = (world.rank() + world.size() - 1) % world.size();
    Tensor r = Tensor::like(t);
    if (mask >> worker::id() & 1) throw std::logic_error("injected");
    if (world.size() == 1) return t;
    if (world.rank() == 0) world.recv(r, previous), world.send(t, next);
    else world.send(t, next), world.recv(r, previous);
    return r;
  });
  return true;
}();

constexpr int64_t kElements = 24;  // divides by 1, 2, 3, 4 and 8 workers

std::string without_digits(std::string text) {
  std::erase_if(text, [](char c) { return c >= '0' && c <= '9'; });
  return text;
}

class RandomProgram {
 public:
  RandomProgram(Session session, unsigned seed, bool records) : s_(std::move(session)), random_(seed), records_(records) {}

  std::vector<std::string> run(int steps) {
    ints_.push_back(s_.get_global_func("diff.value")(1));
    tensors_.push_back(s_.get_global_func("diff.tensor")(kElements, 5));
    for (int i = 0; i < steps; ++i) step();
    sync();
    s_.shutdown();
    return trace_;
  }

 private:
  int64_t pick(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  DRef& some(std::vector<DRef>& of) { return of[static_cast<size_t>(pick(std::ssize(of)))]; }

  /// Some steps, some times: issued one by one, or recorded and replayed.
  void repeat_some() {
    const auto seed = static_cast<unsigned>(random_());
    const int64_t count = 1 + pick(6), times = 1 + pick(3);
    const auto steps = [&] {
      std::mt19937 outer = std::exchange(random_, std::mt19937(seed));
      for (int64_t i = 0; i < count; ++i) step_of(pick(18));
      random_ = outer;
    };
    if (records_) {
      auto recording = s_.record();
      steps();
      recording.finish().repeat(times);
      return;
    }
    const auto ints = ints_, tensors = tensors_;
    for (int64_t i = 0; i < times; ++i) {
      ints_ = ints, tensors_ = tensors;
      steps();
    }
  }

  void step() {
    const int64_t what = pick(28);
    if (what < 23) return step_of(what);
    repeat_some();
  }

  /// The first 18 can be recorded.
  void step_of(int64_t what) {
    const bool in_group = pick(2) == 0;
    const char* ops[] = {"sum", "min", "max", "prod", "avg"};
    switch (what) {
      case 0: ints_.push_back(s_.get_global_func("diff.value")(pick(100))); return;
      case 1: ints_.push_back(s_.get_global_func("diff.add")(some(ints_), some(ints_))); return;
      case 2: tensors_.push_back(s_.get_global_func("diff.tensor")(kElements, pick(100))); return;
      case 3: tensors_.push_back(s_.get_global_func("diff.scale")(some(tensors_), pick(5))); return;
      case 4:
      case 5: s_.allreduce(some(tensors_), some(tensors_), ops[pick(5)], in_group); return;
      case 6: tensors_.push_back(s_.broadcast(numbers())); return;
      case 7: s_.broadcast_from_worker0(some(tensors_), some(tensors_), in_group); return;
      case 8: s_.all_to_all(some(tensors_), some(tensors_), in_group); return;
      case 9: ints_.push_back(s_.get_global_func("diff.add")(some(ints_), pick(9))); return;
      case 10: {
        const int n = in_group ? s_.num_workers() / s_.num_groups() : s_.num_workers();
        DRef part = s_.empty({kElements / n}, kInt64);
        s_.scatter(numbers().reshape({n, kElements / n}), part, in_group);
        s_.allgather(part, some(tensors_), in_group);
        return;
      }
      case 11:
        if (ints_.size() > 1) ints_.erase(ints_.begin() + pick(std::ssize(ints_)));
        if (tensors_.size() > 1) tensors_.erase(tensors_.begin() + pick(std::ssize(tensors_)));
        return;
      case 12: s_.get_global_func("diff.throw_on")(pick(1 << s_.num_workers()), "text " + std::to_string(pick(3))); return;
      case 13:
        tensors_.push_back(s_.get_global_func("diff.two_collectives")(pick(1 << s_.num_workers()), pick(4), some(tensors_)));
        return;
      case 14: ints_.push_back(s_.get_global_func("diff.add")(some(ints_), some(tensors_))); return;  // wrong type
      case 15: s_.barrier(in_group); return;
      case 16:
        tensors_.push_back(s_.get_global_func("diff.ring")(pick(4) ? 0 : pick(1 << s_.num_workers()), some(tensors_)));
        return;
      case 17: {
        const int n = in_group ? s_.num_workers() / s_.num_groups() : s_.num_workers();
        DRef part = s_.empty({kElements / n}, kInt64);
        s_.reduce_scatter(some(tensors_), part, ops[pick(5)], in_group);
        s_.gather_to_worker0(part, some(tensors_), in_group);
        return;
      }
      case 18: {
        Tensor host = numbers();
        s_.copy_from_worker_0(host, some(tensors_));
        if (sync()) trace(host);
        return;
      }
      case 19: {
        sync();
        DRef& set = pick(2) ? some(tensors_) : some(ints_);  // an int becomes a tensor: later calls with it fail
        s_.get_global_func("diff.throw_on")(pick(2), "before debug_copy_from");
        try {
          set.debug_copy_from(static_cast<int>(pick(s_.num_workers())), numbers());
          sync();
        } catch (const RemoteError& error) {  // waits for its own worker only: the failure is seen here or by the sync
          trace(error);
        }
        return;
      }
      case 20: s_.copy_to_worker_0(numbers(), some(tensors_)); return;
      default: read(); return;
    }
  }

  Tensor numbers() {
    Tensor t = Tensor::empty({kElements}, kInt64);
    for (int64_t& v : t.values<int64_t>()) v = pick(50);
    return t;
  }

  /// Errors are collected by sync_all only; then any register may be read.
  void read() {
    sync();
    const int worker = static_cast<int>(pick(s_.num_workers()));
    DRef& ref = pick(2) ? some(ints_) : some(tensors_);
    try {
      const Value value = ref.debug_get_from_remote(worker);
      const std::string text = to_string(value);
      trace_.push_back(text);
      if (value.kind() == Value::Kind::kTensor) trace(value.as<Tensor>());
    } catch (const RemoteError&) {
      trace_.push_back("lost");
    }
  }

  void trace(const Tensor& tensor) {
    std::string text;
    for (int64_t v : tensor.values<int64_t>()) text += std::to_string(v) + " ";
    trace_.push_back(text);
  }

  bool sync() {
    try {
      s_.sync_all();
      trace_.push_back("ok");
      return true;
    } catch (const RemoteError& error) {
      trace(error);
      return false;
    }
  }

  void trace(const RemoteError& error) {
    std::vector<std::string> lines;
    for (const WorkerFailure& f : error.failures())
      // command numbers are not compared: an idle controller's flush takes one, and of several origins a collective's
      // victims may have seen any
      lines.push_back(std::to_string(f.worker) + " " + f.function + " " + f.kind + " " +
                      without_digits(std::regex_replace(f.message, kStep, "")));
    std::sort(lines.begin(), lines.end());
    for (auto& line : lines) trace_.push_back(line);
  }

  inline static const std::regex kStep{R"(step \d+ of program \S+ \(recorded at \S+\)(, iteration \d+ of \d+)?: )"};
  Session s_;
  std::mt19937 random_;
  bool records_;
  std::vector<DRef> ints_, tensors_;
  std::vector<std::string> trace_;
};

int64_t number(const char* name, int64_t fallback) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : fallback;
}

TEST(Differential, random_programs_behave_alike_on_every_kind) {
  const auto first = static_cast<unsigned>(number("TUTTI_TEST_SEED", 1)),
             programs = static_cast<unsigned>(number("TUTTI_TEST_PROGRAMS", 60));
  size_t failures_seen = 0, lost_seen = 0;
  for (unsigned seed = first; seed < first + programs; ++seed) {
    const auto choices = group_counts();
    const int groups = choices[seed % choices.size()];
    const auto expected = RandomProgram(ThreadedSession(workers(), groups), seed, false).run(40);
    const auto got = RandomProgram(make_session(groups), seed, seed % 4 != 0).run(40);
    ASSERT_EQ(got, expected) << "seed " << seed << " on " << kind();
    for (const auto& line : got) failures_seen += line.find("injected") != std::string::npos, lost_seen += line == "lost";
  }
  // the programs do exercise what they are for
  EXPECT_GT(failures_seen, programs / 20);
  EXPECT_GT(lost_seen, programs / 50);
}

}  // namespace

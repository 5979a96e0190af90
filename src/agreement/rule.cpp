#include "agreement/rule.h"

#include <fmt/format.h>

namespace tutti::detail {
namespace {

/// Equal, but for the counts of parts, which are held against lists.
bool compatible(Signature a, Signature b) {
  if (has_parts(a.op) || a.op == CollectiveOp::kAllToAllV) a.count = b.count = 0;
  return a == b;
}

/// What one sends, the other must expect.
std::string find_uneven(const std::vector<const Arrival*>& by_rank) {
  const size_t size = by_rank.size();
  for (size_t from = 0; from < size; ++from)
    for (size_t to = 0; to < size; ++to) {
      const Arrival *a = by_rank[from], *b = by_rank[to];
      if (!a || !b || a->counts.size() != 2 * size || b->counts.size() != 2 * size) continue;
      if (const int64_t sent = a->counts[to], expected = b->counts[size + from]; sent != expected)
        return fmt::format("{} does not match: worker {} has {} elements for worker {}, which expects {}",
                           to_string(a->signature.op), a->worker, sent, b->worker, expected);
    }
  return {};
}

}  // namespace

std::string find_mismatch(const std::vector<const Arrival*>& by_rank) {
  const Arrival* first = nullptr;
  bool mismatch = false;
  for (const Arrival* a : by_rank) {
    if (!a) continue;
    if (!first) first = a;
    mismatch |= !compatible(first->signature, a->signature);
  }
  const bool parts =
      first && has_parts(first->signature.op) && first->signature.root >= 0 && first->signature.root < std::ssize(by_rank);
  if (const Arrival* root = parts && !mismatch ? by_rank[static_cast<size_t>(first->signature.root)] : nullptr)
    for (size_t r = 0; r < by_rank.size(); ++r) {
      const int64_t part = root->counts.empty() ? root->signature.count : r < root->counts.size() ? root->counts[r] : 0;
      if (by_rank[r] && by_rank[r]->signature.count != part)
        return fmt::format("{} does not match: worker {} has {} elements, the root lists {} for it",
                           to_string(root->signature.op), by_rank[r]->worker, by_rank[r]->signature.count, part);
    }
  if (!mismatch && first && first->signature.op == CollectiveOp::kAllToAllV) return find_uneven(by_rank);
  if (!mismatch) return {};
  std::string text = "operands differ:";
  for (size_t r = 0; r < by_rank.size();) {  // equal neighbours are folded
    size_t last = r;
    auto same = [&](const Arrival* a, const Arrival* b) { return (!a && !b) || (a && b && a->signature == b->signature); };
    while (last + 1 < by_rank.size() && same(by_rank[r], by_rank[last + 1])) ++last;
    if (by_rank[r]) {
      const int from = by_rank[r]->worker, to = by_rank[last]->worker;
      text += (from == to ? fmt::format(" worker {}: ", from) : fmt::format(" workers {}-{}: ", from, to)) +
              describe(by_rank[r]->signature) + ";";
    }
    r = last + 1;
  }
  text.back() = '.';
  return text + " All members must call the same collective with equal counts, dtypes, op and root";
}

Disagreement departure(CollectiveOp op, int worker, const std::optional<Origin>& origin) {
  if (!origin)
    return {origin, fmt::format("{}: worker {} left the command without joining; every member must call it in the same command",
                                to_string(op), worker)};
  return {origin, fmt::format("{}: worker {} can't take part after the failure of worker {} at command {}", to_string(op), worker,
                              origin->worker, origin->seq)};
}

Disagreement consequence(CollectiveOp op, int worker, const Origin& origin) {
  const std::string whose = origin.worker == worker ? "its failure" : fmt::format("the failure of worker {}", origin.worker);
  return {origin, fmt::format("{}: worker {} has left it after {} at command {}", to_string(op), worker, whose, origin.seq)};
}

namespace {

/// The members of a collective at one look.
struct Look {
  explicit Look(size_t n) : seen(n), joined(n, nullptr), known(n, nullptr) {}
  std::vector<std::optional<Arrival>> seen;
  std::vector<const Arrival*> joined, known;  // known: also of those who have left since
  size_t missing = 0;
  std::optional<Disagreement> gone;         // somebody won't come
  std::optional<Disagreement> consequence;  // somebody had joined and left; the one whose failure it was, if it is there
};

Look look_at(const Arrival& mine, MemberView& members) {
  const auto& ids = mine.members;
  const CollectiveOp op = mine.signature.op;
  Look look(ids.size());
  for (size_t r = 0; r < ids.size(); ++r) {
    if (ids[r] == mine.worker) {
      look.joined[r] = look.known[r] = &mine;
      continue;
    }
    const bool finished = members.finished(ids[r], mine.id.seq);  // before the arrival: it can't join afterwards
    bool has_left = false;
    const auto& seen = look.seen[r] = members.arrival(ids[r]);
    if (seen && seen->id.seq == mine.id.seq) {
      for (const auto& [id, origin] : seen->left) {
        if (id != mine.id) continue;
        has_left = true;
        if (!look.consequence || origin.worker == ids[r]) look.consequence = consequence(op, ids[r], origin);
      }
      if (seen->id == mine.id && !seen->members.empty()) look.known[r] = &*seen;  // else it declined
      if (!has_left && seen->id == mine.id) {
        look.joined[r] = &*seen;
        continue;
      }
    }
    ++look.missing;
    if (finished && !has_left && !look.gone) look.gone = departure(op, ids[r], members.failure_at(ids[r], mine.id.seq));
  }
  return look;
}

}  // namespace

Verdict decide(const Arrival& mine, MemberView& members, bool stragglers_may_come, std::vector<Arrival>* arrivals) {
  Look look = look_at(mine, members);
  if (look.consequence && !look.gone) look = look_at(mine, members);  // what it is the consequence of is there to see by now
  if (!look.gone) look.gone = std::move(look.consequence);
  Verdict verdict;
  if (std::string mismatch = find_mismatch(look.known); !mismatch.empty()) {
    if (look.missing > 0 && !look.gone && stragglers_may_come) return verdict;
    verdict.kind = Verdict::Kind::kFailed;
    verdict.why = {std::nullopt, std::move(mismatch)};
  } else if (look.gone) {
    verdict.kind = Verdict::Kind::kFailed;
    verdict.why = std::move(*look.gone);
  } else if (look.missing == 0) {
    verdict.kind = Verdict::Kind::kAgreed;
    if (arrivals) {
      arrivals->clear();
      for (const Arrival* a : look.joined) arrivals->push_back(*a);
    }
  }
  return verdict;
}

}  // namespace tutti::detail

#include "agreement/answer.h"

#include <string_view>

#include "agreement/board_view.h"

namespace tutti::detail {

void encode(Writer& out, const Answer& a) {
  out.put(a.id);
  out.put(static_cast<uint8_t>(a.why.has_value()));
  if (!a.why) return;
  encode(out, a.why->origin.value_or(Origin{}));
  out.text(std::string_view(a.why->message).substr(0, 3000));
}

Answer decode_answer(Reader& in) {
  Answer a{.id = in.get<Sequence::Id>(), .why = {}};
  if (in.get<uint8_t>() == 0) return a;
  a.why.emplace();
  if (const Origin origin = decode_origin(in); origin.worker >= 0) a.why->origin = origin;
  a.why->message = in.text();
  return a;
}

std::optional<Answer> Question::look(Board& board) {
  const IsStuck is_stuck = [&](const Announcement& missed, int member) {
    const auto theirs = BoardView(board).arrival(member);
    if (!theirs) return std::optional<Disagreement>();
    auto why = declined_.look(missed, member, *theirs);
    return why ? std::move(why) : asked_.mismatch_with(*theirs);
  };
  bool all_there = true;
  for (size_t rank = 0; rank < asked_.members.size(); ++rank) {
    if (asked_.members[rank] == asked_.worker || !board.has(asked_.members[rank])) continue;
    auto found = compare(board, asked_, rank, is_stuck);
    if (found.why) return Answer{asked_.id(), std::move(found.why)};
    all_there &= found.is_there;
  }
  return all_there ? std::optional(Answer{asked_.id(), {}}) : std::nullopt;
}

}  // namespace tutti::detail

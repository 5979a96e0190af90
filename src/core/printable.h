#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace tutti::detail {

/// A name as a terminal may have it: control characters, which could colour the terminal or hide text, become "\x1b" and the
/// like.
inline std::string printable(std::string_view name) {
  constexpr unsigned kFirstPrintable = 0x20, kDelete = 0x7f;
  constexpr unsigned kC1Lead = 0xc2, kFirstC1 = 0x80, kLastC1 = 0x9f;  // U+0080 to U+009F in UTF-8
  const auto at = [&](size_t i) { return i < name.size() ? unsigned{static_cast<unsigned char>(name[i])} : 0U; };
  std::string text;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool begins_c1 = at(i) == kC1Lead && at(i + 1) >= kFirstC1 && at(i + 1) <= kLastC1;
    if (at(i) >= kFirstPrintable && at(i) != kDelete && !begins_c1) text += name[i];
    else text += fmt::format("\\x{:02x}", begins_c1 ? at(++i) : at(i));
  }
  return text;
}

}  // namespace tutti::detail

#include "svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tutti::launcher::svg {

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text)
    safe += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&quot;" : std::string(1, c);
  return safe;
}

std::string shortened(const std::string& text, size_t most) {
  return text.size() <= most ? text : text.substr(0, most - 1) + "…";
}

std::string colour(size_t rank) {  // hues a golden angle apart
  const double hue = std::fmod(static_cast<double>(rank) * 137.508 + 205, 360);
  const double lightness = 0.74 - 0.1 * static_cast<double>(rank / 12 % 2), strength = 0.62;
  const auto channel = [&](double n) {
    const double k = std::fmod(n + hue / 30, 12);
    const double wave = std::max(-1.0, std::min({k - 3, 9 - k, 1.0}));
    return static_cast<int>(255 * (lightness - strength * std::min(lightness, 1 - lightness) * wave));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", channel(0), channel(8), channel(4));
}

std::string box(int width, int height, const std::string& fill, const std::string& tip) {
  return fmt::format("<rect width=\"{}\" height=\"{}\" rx=\"4\" fill=\"{}\" stroke=\"#888888\">{}</rect>\n", width, height, fill,
                     tip.empty() ? "" : "<title>" + escaped(tip) + "</title>");
}

std::string moved(int x, int y, const std::string& svg) {
  return fmt::format("<g transform=\"translate({} {})\">\n{}</g>\n", x, y, svg);
}

int width_of(const std::string& text, int size) {
  return static_cast<int>(std::ceil(kLetter * size * static_cast<double>(text.size())));
}

std::string text(int x, int y, const std::string& what, int size, const char* look) {
  return fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"{}\"{}>{}</text>\n", x, y, size, look, escaped(what));
}

Drawn in_rows(const std::vector<Drawn>& parts, int columns, int gap, int row_gap) {
  Drawn all;
  int width = 0, row = 0, y = 0, column = 0;
  for (const Drawn& part : parts) width = std::max(width, columns == 1 ? 0 : part.width);
  for (const Drawn& part : parts) {
    if (part.height == 0) continue;
    if (column == columns) column = 0, y += row + row_gap, row = 0;
    const int x = column++ * (width + gap);
    if (!part.svg.empty()) all.svg += moved(x, y, part.svg);
    row = std::max(row, part.height);
    all.width = std::max(all.width, x + part.width);
    all.height = y + row;
  }
  return all;
}

Drawn framed(const Drawn& inside, int width, int height, const std::string& title, const std::string& fill, const char* look) {
  const Drawn all{std::max(width, width_of(title, 12)) + 2 * kGap, height + kTitle + kGap};
  const std::string frame = box(all.width, all.height, fill) + text(kGap, 17, title, 12, look);
  return {all.width, all.height, frame + moved(kGap, kTitle, inside.svg)};
}

int most(const std::vector<Drawn>& parts, int Drawn::*length) {
  int longest = 0;
  for (const Drawn& part : parts) longest = std::max(longest, part.*length);
  return longest;
}

}  // namespace tutti::launcher::svg

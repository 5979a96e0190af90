// Boxes and words of a picture, put together from the smallest on.
#pragma once

#include <string>
#include <vector>

namespace tutti::launcher::svg {

inline constexpr int kGap = 10, kTitle = 24;
inline constexpr double kLetter = 0.65, kBoldLetter = 0.72;  ///< width of a letter of size 1 in a wide font
inline constexpr const char* kBold = " font-weight=\"bold\"";
inline constexpr const char* kCentred = " text-anchor=\"middle\"";
inline constexpr const char* kBoldCentred = " font-weight=\"bold\" text-anchor=\"middle\"";

/// A part of the picture; its corner is at 0, 0.
struct Drawn {
  int width = 0, height = 0;
  std::string svg = {};
};

std::string escaped(const std::string& text);
std::string shortened(const std::string& text, size_t most);
int width_of(const std::string& text, int size);  ///< at most
std::string colour(size_t rank);                  ///< those of neighbours differ

std::string box(int width, int height, const std::string& fill, const std::string& tip = "");
std::string text(int x, int y, const std::string& what, int size, const char* look = "");
std::string moved(int x, int y, const std::string& svg);

/// Parts in rows of `columns`, each column as wide as the widest part. Parts without a size leave no gap.
Drawn in_rows(const std::vector<Drawn>& parts, int columns, int gap, int row_gap);
inline Drawn in_rows(const std::vector<Drawn>& parts, int columns, int gap) { return in_rows(parts, columns, gap, gap); }

/// A box around a part, with a title. `width` and `height`: of the largest part whose frame stands in line with this.
Drawn framed(const Drawn& inside, int width, int height, const std::string& title, const std::string& fill, const char* look);
int most(const std::vector<Drawn>& parts, int Drawn::*length);

}  // namespace tutti::launcher::svg

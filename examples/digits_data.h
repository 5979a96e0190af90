// Reads examples/data/digits.csv.gz: 1,797 rows of 64 pixels (0..16) and a label (0..9). UCI, CC BY 4.0.
#pragma once

#include <zlib.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

struct Digits {
  static constexpr int kPixels = 64, kClasses = 10;
  std::vector<float> pixels;  // rows x 64, scaled to 0..1
  std::vector<int> labels;
  int rows() const { return static_cast<int>(labels.size()); }
};

struct DigitsSplit {
  Digits train, test;  // every fifth row is the test set
};

inline DigitsSplit read_digits(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (!file) throw std::runtime_error("cannot read " + path + "; pass the path of digits.csv.gz");
  DigitsSplit split;
  char line[1024];
  for (int row = 0; gzgets(file, line, sizeof line); ++row) {
    Digits& part = row % 5 == 0 ? split.test : split.train;
    char* at = line;
    for (int i = 0; i < Digits::kPixels; ++i, ++at) part.pixels.push_back(std::strtof(at, &at) / 16.0f);
    part.labels.push_back(static_cast<int>(std::strtol(at, &at, 10)));
  }
  gzclose(file);
  if (split.train.rows() == 0) throw std::runtime_error(path + " holds no rows");
  return split;
}

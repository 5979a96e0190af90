#include "control/controller/sites.h"

#include <fmt/format.h>

#include <cstring>

namespace tutti::detail {

uint32_t Sites::number(Where where) {
  if (where.line == last_.line && std::strcmp(last_file_.c_str(), where.file) == 0) return last_number_;
  auto [it, is_new] = numbers_.try_emplace({where.file, where.line}, static_cast<uint32_t>(texts_.size()));
  if (is_new) texts_.push_back(where.line ? fmt::format("{}:{}", where.file, where.line) : "");
  last_ = where;
  last_file_ = where.file;
  return last_number_ = it->second;
}

}  // namespace tutti::detail

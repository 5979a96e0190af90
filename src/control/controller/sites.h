#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tutti/session.h"

namespace tutti::detail {

/// Where commands were issued, by numbers that travel with them: failures come back with theirs.
class Sites {
 public:
  uint32_t number(Where where);
  std::string text(uint32_t number) const { return number < texts_.size() ? texts_[number] : ""; }  ///< "train.cpp:31"
  Where last() const { return {last_file_.c_str(), last_.line}; }                                   ///< of the last command

 private:
  std::vector<std::string> texts_;
  std::map<std::pair<std::string, uint32_t>, uint32_t> numbers_;
  Where last_{nullptr, UINT32_MAX};
  std::string last_file_;
  uint32_t last_number_ = 0;
};

}  // namespace tutti::detail

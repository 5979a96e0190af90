#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::launcher {

/// This process becomes the program.  @return only if it can't: 127 (there is none) or 126, as a shell has it; why has been said
int become(std::vector<std::string> words);

/// All of it, or until nobody reads any more.
void write_all(int fd, std::string_view text);

/// What `ask` writes, from a process of its own, for it may hang or crash.  @return  false: it has not ended well, or not in
/// time; `answer` is what it has written until then
bool ask_apart(std::chrono::milliseconds patience, std::string& answer, const std::function<void(int to)>& ask);

}  // namespace tutti::launcher

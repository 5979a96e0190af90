// A rank in the place of this program on its terminal: mpirun's ranks have no terminal for standard input, and Ctrl-C would end
// mpirun.
#pragma once

#include <termios.h>

#include <string>

namespace tutti::launcher {

/// The terminal that is this program's standard input; empty: it is none, or this program is in the background.
std::string terminal_name();

/// While a rank has the terminal. Afterwards it is ours again, as it was.
class LentTerminal {
 public:
  LentTerminal();
  ~LentTerminal();
  LentTerminal(const LentTerminal&) = delete;
  LentTerminal& operator=(const LentTerminal&) = delete;

 private:
  termios modes_{};
};

/// In the rank: standard streams become the terminal's, whose Ctrl-C comes here.  @return why not; empty: done
std::string take_terminal(const std::string& name);

}  // namespace tutti::launcher

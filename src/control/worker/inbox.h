#pragma once

#include <string>

#include "control/segment/segment.h"
#include "control/wire/command.h"

namespace tutti::detail {

/// A worker's end of its node's command ring: one command at a time, and how to wait for the next.
class Inbox {
 public:
  Inbox(Segment& segment, int worker);
  bool fetch() { return fetched_ || (fetched_ = read()); }    ///< whether a command is there
  bool is_due() { return fetched_ || commands_.readable(); }  ///< to be looked at
  void await();                                               ///< until one is fetched or the session is abandoned
  Command& command() { return command_; }                     ///< that was fetched last
  const Command& command() const { return command_; }
  const std::string& malformed() const { return malformed_; }  ///< why its body can't be read, or ""
  void take() {                                                ///< it is about to run
    fetched_ = false;
    calls_in_a_row_ = command_.action == Action::kCallPacked ? calls_in_a_row_ + 1 : 0;
  }

 private:
  bool read();  ///< false: none is there, or not whole
  void decode(std::span<const std::byte> frame);

  Segment& segment_;
  WaitPolicy policy_;
  RingReader commands_;
  FrameReader frames_;
  size_t unrung_ = 0;  // consumed since a controller that sleeps was woken for the space
  uint32_t calls_in_a_row_ = 0;
  bool fetched_ = false;
  Command command_;
  std::string malformed_;
};

}  // namespace tutti::detail

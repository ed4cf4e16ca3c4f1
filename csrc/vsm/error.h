// The two ways a PTX program can fail here: its text is refused, or its execution is stopped.
#pragma once

#include <stdexcept>
#include <string>

namespace tcgen05::vsm {

// Refused while loading; the text names the line and what is wrong with it.
struct LoadError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Thrown by instruction handlers: what happened, and to which lane (-1: the warp as a whole).
struct Fault {
  std::string what;
  int lane = -1;
};

// What a launch throws: the fault with instruction, line, CTA and thread.
struct ExecutionError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The launch was stopped from outside (Ctrl-C).
struct Interrupted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace tcgen05::vsm

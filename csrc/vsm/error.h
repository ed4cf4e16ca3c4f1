// The two ways a PTX program can fail here: its text is refused, or its execution is stopped.
#pragma once

#include <stdexcept>
#include <string>

namespace tcgen05::vsm {

// Text in printable ASCII: PTX may hold any bytes, and messages quote it.
inline std::string printable(const std::string& text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (unsigned char c : text) {
    if (c == '\n' || c == '\t' || (c >= 0x20 && c < 0x7f)) {
      out += static_cast<char>(c);
    } else {
      out += {'\\', 'x', kDigits[c >> 4], kDigits[c & 15]};
    }
  }
  return out;
}

// Refused while loading; the text names the line and what is wrong with it.
struct LoadError : std::runtime_error {
  explicit LoadError(const std::string& text) : std::runtime_error(printable(text)) {}
};

// Thrown by instruction handlers: what happened, and to which lane (-1: the warp as a whole).
struct Fault {
  std::string what;
  int lane = -1;
};

// What a launch throws: the fault with instruction, line, CTA and thread.
struct ExecutionError : std::runtime_error {
  explicit ExecutionError(const std::string& text) : std::runtime_error(printable(text)) {}
};

// The launch was stopped from outside (Ctrl-C).
struct Interrupted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace tcgen05::vsm

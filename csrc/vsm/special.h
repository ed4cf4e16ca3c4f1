// Special registers (PTX ISA 10).
#pragma once

#include <string_view>

#include "vsm/program.h"

namespace tcgen05::vsm {

struct Special {
  std::string_view name;
  bool wide;     // 64 bits
  bool dynamic;  // changes while the warp runs: read each time
  uint64_t (*value)(const Warp&, int lane);
};

// Row of `name`, or -1.
int find_special(std::string_view name);
const Special& special(int row);

}  // namespace tcgen05::vsm

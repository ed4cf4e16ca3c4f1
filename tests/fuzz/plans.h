// Attributes of the custom call, damaged: what decode_plan lets through must run within its arrays.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "random.h"

namespace fuzz {

// The attributes of one valid call, by name ("repeats", "d_place", ...; "scalars": idesc, shared bytes,
// columns).
struct Attributes {
  std::string opcode;
  std::vector<std::pair<std::string, std::vector<int64_t>>> lists;
};

std::vector<Attributes> read_plans(const std::string& text);
Attributes damage(Attributes a, Random& r);
// Decodes, and executes what was accepted; false if it was refused.
bool run_plan(const Attributes& a);

}  // namespace fuzz

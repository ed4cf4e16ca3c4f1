// Read-modify-write operations: of atom and red (memory.cc) and of reducing copies.
#pragma once

#include <cstdint>
#include <mutex>

#include "vsm/type.h"

namespace tcgen05::vsm {

// In the order of the modifiers that decode_atomic lists.
enum class Reduction : uint8_t { and_, or_, xor_, exch, add, inc, dec, min, max, cas };

// Held while cells are changed: clusters run on several host threads.
std::mutex& atomics();

bool reduction_allowed(Reduction op, Type t);
// The new value of a cell of type `t` that holds `old`; `c` is the third operand of cas.
uint64_t reduce(Reduction op, Type t, uint64_t old, uint64_t b, uint64_t c);

}  // namespace tcgen05::vsm

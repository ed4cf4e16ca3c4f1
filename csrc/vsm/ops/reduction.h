// Read-modify-write operations: of atom and red (memory.cc) and of reducing copies.
#pragma once

#include <cstdint>
#include <mutex>

#include "vsm/decode.h"
#include "vsm/type.h"

namespace tcgen05::vsm {

// In the order of the modifiers that decode_atomic lists.
enum class Reduction : uint8_t { and_, or_, xor_, exch, add, inc, dec, min, max, cas };

// Held while cells are changed: clusters run on several host threads.
std::mutex& atomics();

bool reduction_allowed(Reduction op, Type t);
// The modifier of a reducing copy: all but .exch and .cas.
Reduction take_reduction(Decoder& d);
// The new value of a cell of type `t` that holds `old`; `c` is the third operand of cas.
uint64_t reduce(Reduction op, Type t, uint64_t old, uint64_t b, uint64_t c);
// The same for cells side by side.
void reduce_cells(Reduction op, Type t, uint8_t* to, const uint8_t* from, size_t bytes);

}  // namespace tcgen05::vsm

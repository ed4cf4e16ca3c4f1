// Addresses of a warp instruction: decoding [base + offset], and host pointers of all lanes at once.
#pragma once

#include "vsm/decode.h"
#include "vsm/machine.h"

namespace tcgen05::vsm {

struct Access {
  uint32_t bytes;
  uint32_t align;
  bool write;
  bool checked = false;  // the caller tells strict mode itself
};

// Addresses of the lanes: slot `base` (64-bit if `wide`) plus `offset`.
void lane_addresses(const Warp& w, Ref base, bool wide, uint64_t offset, Mask m, uint64_t* out);

// Host pointers of the lanes in `m`; throws Fault for the first lane that may not touch its bytes.
void lane_pointers(Warp& w, Space space, const uint64_t* addresses, const Access& access, Mask m,
                   uint8_t** out);

// Where bytes at an address are counted.
Traffic::Where place_of(Space space, uint64_t address);

// Modifiers without effect here: caching, eviction, prefetch size. True if a cache policy operand follows.
bool take_cache_modifiers(Decoder& d);
// .weak .relaxed .acquire ... and the scope.
struct Order {
  bool strong = false;   // anything but .weak
  bool relaxed = false;  // .relaxed or .volatile
};
Order take_order_modifiers(Decoder& d);
// The state space modifier; generic if there is none.
Space take_space(Decoder& d);
// The space of an access to `x` that names parameters: those of device functions are local.
Space space_of(Decoder& d, const Operand& x, Space named);

}  // namespace tcgen05::vsm

// Plans the copy of one array into its storage: how large its pieces are and how each finds its place.
#pragma once

#include "launch/params.h"
#include "plan/plan.h"

namespace tcgen05::launch {

// The copy of `placement`'s array. `aligned`: the array starts on a 16-byte boundary and so does every
// share of it; then pieces of 16 bytes are used when the placement keeps them together, else single items.
// Throws std::invalid_argument when the placement has more digits than a kernel can walk.
Copy make_copy(const Placement& placement, bool aligned);

}  // namespace tcgen05::launch

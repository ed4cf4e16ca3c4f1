// Barriers of CTAs and clusters.
#pragma once

#include "vsm/machine.h"

namespace tcgen05::vsm {

// Threads have exited: barriers that waited for every thread may be complete now.
void barriers_after_exit(Cta& cta);

// Waits until the lanes `members` of the warp are together; true when they are (`m` holds them).
bool gathered(Warp& w, Mask members, Mask m);

}  // namespace tcgen05::vsm

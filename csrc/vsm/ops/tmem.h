// What the two tcgen05 files share.
#pragma once

#include <vector>

#include "vsm/decode.h"
#include "vsm/machine.h"

namespace tcgen05::vsm {

int take_cta_group(Decoder& d);
// Fault if `group` is 2 and the cluster has no pairs.
void check_pair(Warp& w, int group, int lane);
// The CTA, or both CTAs of its pair, even one first.
std::vector<Cta*> pair_of(Warp& w, int group);

}  // namespace tcgen05::vsm

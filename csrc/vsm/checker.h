// Strict mode: what hardware does not tell.
#pragma once

#include "vsm/machine.h"

namespace tcgen05::vsm {

// After the last thread of a cluster has exited.
void finish_checks(Cluster& cluster);

}  // namespace tcgen05::vsm

// From a Plan to what a kernel is launched with. Pure functions: no driver, no device.
#pragma once

#include <string>

#include "launch/driver.h"
#include "launch/params.h"
#include "plan/arrays.h"
#include "plan/plan.h"

namespace tcgen05::launch {

// Dynamic shared memory of one CTA in bytes: the operand area, or the image of TMEM where that is larger.
uint32_t shared_bytes(const Plan& plan);

// Columns of TMEM that a CTA allocates: a power of two, at least 32.
uint32_t allocated_columns(const Plan& plan);

// Parameters of the kernel for `plan` on `arrays`. Throws std::invalid_argument when the plan needs more than
// a parameter block holds.
Params pack(const Plan& plan, const Arrays& arrays);

// As many CTAs (pairs) as can be resident at once on `device`, but no more than the batch has elements.
Grid grid_for(const Plan& plan, int64_t batch_size, const Device& device);

}  // namespace tcgen05::launch

// Attributes and buffers of the custom call, read without trusting them.
#pragma once

#include <string>
#include <vector>

#include "plan/arrays.h"
#include "plan/plan.h"
#include "xla/ffi/api/ffi.h"

namespace tcgen05 {

// The Plan in the attributes; throws std::invalid_argument naming the attribute that is missing or wrong.
Plan read_plan(xla::ffi::Dictionary attributes);

// The attribute "executor": "model", "vsm" or "vsm-strict".
std::string read_executor(xla::ffi::Dictionary attributes);

// Arguments and result against the plan.
Arrays read_arrays(const Plan& plan, xla::ffi::RemainingArgs arguments, xla::ffi::RemainingRets results);

}  // namespace tcgen05

// The handlers of the custom call `jax_tcgen05_mma`, one per platform.
#pragma once

#include "xla/ffi/api/ffi.h"

namespace tcgen05 {

XLA_FFI_DECLARE_HANDLER_SYMBOL(kMmaCpu);

}  // namespace tcgen05

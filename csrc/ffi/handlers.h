// The handlers of the custom call `jax_tcgen05_mma`, one per platform.
#pragma once

#include <string>

#include "xla/ffi/api/ffi.h"

namespace tcgen05 {

XLA_FFI_DECLARE_HANDLER_SYMBOL(kMmaCpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(kMmaCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(kMmaCudaInitialize);

// The folder with the device kernels that build_kernels.py made; set once, before any call runs.
const std::string& kernel_directory();
void set_kernel_directory(const std::string& directory);

}  // namespace tcgen05

// The real driver: libcuda, opened when first asked for. Nothing here links CUDA or needs its headers.
#pragma once

#include <vector>

#include "launch/driver.h"

namespace tcgen05::launch {

// The process's one libcuda; always returned, whether or not a driver is there (see Driver::unavailable).
Driver& libcuda();

// Version of the installed driver as CUDA counts it (13000 = 13.0), 0 when there is none.
int libcuda_version();

// Every device that the driver shows; empty when there is none.
std::vector<Device> libcuda_devices();

}  // namespace tcgen05::launch

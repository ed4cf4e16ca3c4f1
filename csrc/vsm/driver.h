// The virtual SM as a driver: the launcher's own way to it, with the same kernels and parameter bytes as on a
// GPU.
#pragma once

#include <exception>

#include "launch/driver.h"
#include "vsm/machine.h"

namespace tcgen05::vsm {

// One call's surroundings; its address is the Stream that the launcher passes through.
struct DriverCall {
  GlobalMemory memory;  // what the kernel may touch; parameters hold its addresses
  unsigned threads = 1;
  bool strict = false;
  std::exception_ptr error;  // why a function failed: the driver interface has numbers only
};

// The process's one virtual GPU: compute capability 10.0, `multiprocessors` CTAs side by side.
launch::Driver& virtual_driver();

}  // namespace tcgen05::vsm

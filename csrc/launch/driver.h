// What the launcher asks of a CUDA driver, and no more. Implementations: libcuda.h (the real one),
// recording.h (a fake for tests), and the virtual SM's, which runs PTX.
//
// A Result is a CUresult: 0 is success. Every function may be called from any thread; none throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tcgen05::launch {

using Result = int;
using Stream = void*;    // CUstream
using Context = void*;   // CUcontext: modules belong to one
using Module = void*;    // CUmodule
using Function = void*;  // CUfunction

inline constexpr Result kSuccess = 0;

struct Device {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  int64_t shared_per_block = 0;  // the most dynamic + static shared memory a CTA may opt into, in bytes
  int64_t shared_per_multiprocessor = 0;
};

// A grid of CTAs of kThreads threads, one dimension each. `cluster` CTAs form a cluster (1: none).
struct Grid {
  uint32_t ctas = 1;
  uint32_t cluster = 1;
  uint32_t threads = 1;
  uint32_t shared_bytes = 0;  // dynamic
};

class Driver {
 public:
  virtual ~Driver() = default;

  // Empty when the driver can be used; else one sentence that says why not and what to do.
  virtual std::string unavailable() = 0;
  virtual std::string error_name(Result result) = 0;  // "CUDA_ERROR_..."

  // Code that load_module wants: true for PTX text, false for a cubin of the device's own target.
  virtual bool wants_ptx() = 0;

  // Makes the context of `stream` current until `leave`, which follows each successful `enter`.
  virtual Result enter(Stream stream, Context* context) = 0;
  virtual void leave() = 0;

  // These act on the current context.
  virtual Result device(Device* device) = 0;
  virtual Result load_module(const std::string& image, Module* module) = 0;
  virtual Result get_function(Module module, const std::string& entry, Function* function) = 0;
  virtual Result allow_shared(Function function, uint32_t bytes) = 0;  // largest dynamic shared memory

  // `params` is the kernel's only parameter, copied before the call returns. Does nothing else that a
  // CUDA graph could not capture.
  virtual Result launch(Function function, const Grid& grid, Stream stream, const void* params,
                        size_t bytes) = 0;
};

}  // namespace tcgen05::launch

// Runs one call's kernel on a driver: chooses it, loads its module once per context, launches it.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "launch/driver.h"
#include "launch/error.h"
#include "launch/pack.h"

namespace tcgen05::launch {

// "sm_100a" and its like for compute capability 10.0, 10.3 and 11.0; empty for any other.
std::string target_of(int major, int minor);

// Thread-safe. A context's modules stay loaded for the life of the launcher.
class Launcher {
 public:
  // `directory` holds what build_kernels.py wrote: <kind>.<target>.cubin, <kind>.ptx, or unavailable.txt.
  Launcher(Driver& driver, std::string directory);

  // Finds and loads the kernel for `plan` in the context of `stream`. Throws LaunchError.
  void prepare(const Plan& plan, bool masked, Stream stream);

  // Launches the kernel on `arrays`; an empty batch launches nothing. After `prepare` it calls nothing that
  // a CUDA graph could not capture. Throws LaunchError, or std::invalid_argument (see pack).
  void execute(const Plan& plan, const Arrays& arrays, Stream stream);

 private:
  struct Loaded {
    Device device;
    std::map<Kind, Module> modules;
    std::map<std::string, Function> functions;
  };

  // Both expect the context to be current.
  Loaded& loaded(const Plan& plan, Context context);
  Function function(const Plan& plan, bool masked, Loaded& loaded);

  Driver& driver_;
  const std::string directory_;
  std::mutex mutex_;  // guards contexts_ and all in it
  std::map<Context, Loaded> contexts_;
};

}  // namespace tcgen05::launch

#include "vsm/driver.h"

#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "vsm/module.h"

namespace tcgen05::vsm {
namespace {

using launch::Result;

constexpr Result kInvalidImage = 200;  // CUDA_ERROR_INVALID_IMAGE
constexpr Result kNotFound = 500;      // CUDA_ERROR_NOT_FOUND
constexpr Result kLaunchFailed = 719;  // CUDA_ERROR_LAUNCH_FAILED

struct Kernel {
  LoadedModule* module;
  const Program* program;
};

// Modules and kernels live as long as the process, as the launcher's cache does.
class VirtualDriver final : public launch::Driver {
 public:
  std::string unavailable() override { return ""; }
  std::string error_name(Result result) override {
    switch (result) {
      case kInvalidImage:
        return "CUDA_ERROR_INVALID_IMAGE";
      case kNotFound:
        return "CUDA_ERROR_NOT_FOUND";
      default:
        return "CUDA_ERROR_LAUNCH_FAILED";
    }
  }
  bool wants_ptx() override { return true; }

  Result enter(launch::Stream, launch::Context* context) override {
    *context = this;
    return launch::kSuccess;
  }
  void leave() override {}

  Result device(launch::Device* device) override {
    const unsigned cores = std::thread::hardware_concurrency();
    *device = {"virtual SM", 10, 0, static_cast<int>(cores ? cores : 1), kMaxShared - kReservedShared,
               kMaxShared};
    return launch::kSuccess;
  }

  Result load_module(const std::string& image, launch::Module* module) override {
    try {
      auto loaded = std::make_unique<LoadedModule>(image);
      const std::lock_guard<std::mutex> lock(mutex_);
      *module = loaded.get();
      modules_.push_back(std::move(loaded));
      return launch::kSuccess;
    } catch (const std::exception&) {
      return kInvalidImage;
    }
  }

  Result get_function(launch::Module module, const std::string& entry, launch::Function* function) override {
    auto* loaded = static_cast<LoadedModule*>(module);
    try {
      auto kernel = std::make_unique<Kernel>(Kernel{loaded, &loaded->program(entry)});
      const std::lock_guard<std::mutex> lock(mutex_);
      *function = kernel.get();
      kernels_.push_back(std::move(kernel));
      return launch::kSuccess;
    } catch (const std::exception&) {
      return kNotFound;
    }
  }

  Result allow_shared(launch::Function, uint32_t) override { return launch::kSuccess; }

  Result launch(launch::Function function, const launch::Grid& grid, launch::Stream stream,
                const void* params, size_t bytes) override {
    const auto* kernel = static_cast<const Kernel*>(function);
    auto* call = static_cast<DriverCall*>(stream);
    LaunchConfig config;
    config.grid = {grid.ctas, 1, 1};
    config.block = {grid.threads, 1, 1};
    config.cluster = {grid.cluster, 1, 1};
    config.dynamic_shared = grid.shared_bytes;
    const auto* first = static_cast<const uint8_t*>(params);
    config.params.assign(first, first + bytes);
    config.memory = &call->memory;
    config.strict = call->strict;
    config.threads = call->threads;
    try {
      kernel->module->add_variables(call->memory);
      vsm::launch(*kernel->program, std::move(config));
      return launch::kSuccess;
    } catch (...) {
      call->error = std::current_exception();
      return kLaunchFailed;
    }
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<LoadedModule>> modules_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
};

}  // namespace

launch::Driver& virtual_driver() {
  static VirtualDriver driver;
  return driver;
}

}  // namespace tcgen05::vsm

#include "launch/libcuda.h"

#include <dlfcn.h>

#include <string>

namespace tcgen05::launch {
namespace {

constexpr int kOldestDriver = 13000;  // cubins come from nvcc 13.0

// The few lines of the driver API that are used, with the values of CUDA's cuda.h.
using CuDevice = int;

enum DeviceAttribute {
  kMultiprocessorCount = 16,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kMaxSharedPerMultiprocessor = 81,
  kMaxSharedPerBlockOptin = 97,
};
constexpr int kMaxDynamicSharedSizeBytes = 8;  // CUfunction_attribute
constexpr int kClusterDimension = 4;           // CUlaunchAttributeID

struct LaunchAttribute {
  int id;
  char padding[8 - sizeof(int)];
  union {
    char bytes[64];
    unsigned cluster[3];
  } value;
};

struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

class LibCuda final : public Driver {
 public:
  LibCuda() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      unavailable_ = "no CUDA driver (libcuda.so.1 cannot be opened): install NVIDIA's driver";
      return;
    }
    bool complete = true;
    const auto find = [&](auto*& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      complete = complete && function != nullptr;
    };
    find(init_, "cuInit");
    find(driver_get_version_, "cuDriverGetVersion");
    find(get_error_name_, "cuGetErrorName");
    find(device_get_count_, "cuDeviceGetCount");
    find(device_get_, "cuDeviceGet");
    find(device_get_name_, "cuDeviceGetName");
    find(device_get_attribute_, "cuDeviceGetAttribute");
    find(ctx_push_, "cuCtxPushCurrent_v2");
    find(ctx_pop_, "cuCtxPopCurrent_v2");
    find(ctx_get_current_, "cuCtxGetCurrent");
    find(ctx_get_device_, "cuCtxGetDevice");
    find(stream_get_ctx_, "cuStreamGetCtx");
    find(module_load_data_, "cuModuleLoadData");
    find(module_get_function_, "cuModuleGetFunction");
    find(func_set_attribute_, "cuFuncSetAttribute");
    find(launch_kernel_ex_, "cuLaunchKernelEx");
    if (driver_get_version_ != nullptr) driver_get_version_(&version_);
    if (!complete || version_ < kOldestDriver) {
      unavailable_ = "the CUDA driver is too old: it supports CUDA " + std::to_string(version_ / 1000) + "." +
                     std::to_string(version_ % 1000 / 10) + ", the kernels need 13.0 (driver 580 or newer)";
      return;
    }
    const Result result = init_(0);
    if (result != kSuccess)
      unavailable_ = "the CUDA driver does not start: cuInit returned " + error_name(result);
  }

  std::string unavailable() override { return unavailable_; }

  std::string error_name(Result result) override {
    const char* name = nullptr;
    if (get_error_name_ == nullptr || get_error_name_(result, &name) != kSuccess || name == nullptr)
      return "CUDA error " + std::to_string(result);
    return name;
  }

  bool wants_ptx() override { return false; }

  Result enter(Stream stream, Context* context) override {
    // The legacy default stream has no context of its own: it is the current context's.
    Result result = stream == nullptr ? ctx_get_current_(context) : stream_get_ctx_(stream, context);
    return result != kSuccess ? result : ctx_push_(*context);
  }

  void leave() override {
    Context context = nullptr;
    ctx_pop_(&context);
  }

  Result device(Device* device) override {
    CuDevice ordinal = 0;
    const Result result = ctx_get_device_(&ordinal);
    return result != kSuccess ? result : describe(ordinal, device);
  }

  Result load_module(const std::string& image, Module* module) override {
    return module_load_data_(module, image.data());
  }

  Result get_function(Module module, const std::string& entry, Function* function) override {
    return module_get_function_(function, module, entry.c_str());
  }

  Result allow_shared(Function function, uint32_t bytes) override {
    return func_set_attribute_(function, kMaxDynamicSharedSizeBytes, static_cast<int>(bytes));
  }

  Result launch(Function function, const Grid& grid, Stream stream, const void* params, size_t) override {
    LaunchAttribute cluster{};
    cluster.id = kClusterDimension;
    cluster.value.cluster[0] = grid.cluster;
    cluster.value.cluster[1] = cluster.value.cluster[2] = 1;
    const LaunchConfig config{{grid.ctas, 1, 1}, {grid.threads, 1, 1},      grid.shared_bytes, stream,
                              &cluster,          grid.cluster > 1 ? 1u : 0u};
    void* arguments[] = {const_cast<void*>(params)};
    return launch_kernel_ex_(&config, function, arguments, nullptr);
  }

  int version() const { return version_; }

  std::vector<Device> devices() {
    std::vector<Device> out;
    int count = 0;
    if (!unavailable_.empty() || device_get_count_(&count) != kSuccess) return out;
    for (int i = 0; i < count; ++i) {
      CuDevice ordinal = 0;
      Device device;
      if (device_get_(&ordinal, i) == kSuccess && describe(ordinal, &device) == kSuccess)
        out.push_back(device);
    }
    return out;
  }

 private:
  Result describe(CuDevice ordinal, Device* device) {
    char name[256] = {};
    Result result = device_get_name_(name, sizeof(name), ordinal);
    device->name = name;
    const auto get = [&](auto* out, DeviceAttribute attribute) {
      int value = 0;
      if (result == kSuccess) result = device_get_attribute_(&value, attribute, ordinal);
      *out = value;
    };
    get(&device->major, kComputeCapabilityMajor);
    get(&device->minor, kComputeCapabilityMinor);
    get(&device->multiprocessors, kMultiprocessorCount);
    get(&device->shared_per_block, kMaxSharedPerBlockOptin);
    get(&device->shared_per_multiprocessor, kMaxSharedPerMultiprocessor);
    return result;
  }

  std::string unavailable_;
  int version_ = 0;
  Result (*init_)(unsigned) = nullptr;
  Result (*driver_get_version_)(int*) = nullptr;
  Result (*get_error_name_)(Result, const char**) = nullptr;
  Result (*device_get_count_)(int*) = nullptr;
  Result (*device_get_)(CuDevice*, int) = nullptr;
  Result (*device_get_name_)(char*, int, CuDevice) = nullptr;
  Result (*device_get_attribute_)(int*, int, CuDevice) = nullptr;
  Result (*ctx_push_)(Context) = nullptr;
  Result (*ctx_pop_)(Context*) = nullptr;
  Result (*ctx_get_current_)(Context*) = nullptr;
  Result (*ctx_get_device_)(CuDevice*) = nullptr;
  Result (*stream_get_ctx_)(Stream, Context*) = nullptr;
  Result (*module_load_data_)(Module*, const void*) = nullptr;
  Result (*module_get_function_)(Function*, Module, const char*) = nullptr;
  Result (*func_set_attribute_)(Function, int, int) = nullptr;
  Result (*launch_kernel_ex_)(const LaunchConfig*, Function, void**, void**) = nullptr;
};

LibCuda& instance() {
  static LibCuda* const libcuda = new LibCuda;  // never destroyed: XLA may launch during exit
  return *libcuda;
}

}  // namespace

Driver& libcuda() { return instance(); }
int libcuda_version() { return instance().version(); }
std::vector<Device> libcuda_devices() { return instance().devices(); }

}  // namespace tcgen05::launch

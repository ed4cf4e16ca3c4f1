#include "launch/launcher.h"

#include <fstream>
#include <iterator>
#include <utility>

#include "launch/variants.h"

namespace tcgen05::launch {
namespace {

constexpr int64_t kOwnShared = 1024;  // the barrier and the TMEM address, before the aligned operand area
constexpr const char* kCpuAdvice =
    "; the functional model runs the same call on the CPU, e.g. under "
    "jax.default_device(jax.devices(\"cpu\")[0])";

// The call in words, to begin every message.
std::string describe(const Plan& plan) {
  std::string out = plan.opcode_text + " [D (";
  for (size_t i = 0; i < plan.d.axes.size(); ++i)
    out += (i ? ", " : "") + std::to_string(plan.d.axes[i].size);
  return out + ") per CTA, " + std::to_string(plan.m_repeat) + "x" + std::to_string(plan.n_repeat) + "x" +
         std::to_string(plan.k_repeat) + " issues]: ";
}

// Errors that an earlier kernel left behind: every later call in the process reports them too.
bool sticky(const std::string& name) {
  static const char* const kNames[] = {
      "CUDA_ERROR_ILLEGAL_ADDRESS",       "CUDA_ERROR_LAUNCH_TIMEOUT",      "CUDA_ERROR_ASSERT",
      "CUDA_ERROR_HARDWARE_STACK_ERROR",  "CUDA_ERROR_ILLEGAL_INSTRUCTION", "CUDA_ERROR_MISALIGNED_ADDRESS",
      "CUDA_ERROR_INVALID_ADDRESS_SPACE", "CUDA_ERROR_INVALID_PC",          "CUDA_ERROR_LAUNCH_FAILED"};
  for (const char* known : kNames)
    if (name == known) return true;
  return false;
}

void check(Driver& driver, const Plan& plan, Result result, const std::string& doing) {
  if (result == kSuccess) return;
  const std::string name = driver.error_name(result);
  std::string message = describe(plan) + doing + " failed with " + name;
  if (sticky(name))
    message +=
        ", an error that a kernel launched earlier in this process may have left; start a fresh process";
  throw LaunchError(Failure::internal, message);
}

bool read_file(const std::string& path, std::string* content) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return false;
  content->assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  return true;
}

// The context of a stream is current while this lives.
class Entered {
 public:
  Entered(Driver& driver, const Plan& plan, Stream stream) : driver_(driver) {
    const std::string reason = driver.unavailable();
    if (!reason.empty()) throw LaunchError(Failure::unavailable, describe(plan) + reason + kCpuAdvice);
    check(driver, plan, driver.enter(stream, &context_), "finding the stream's context");
  }
  ~Entered() { driver_.leave(); }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

  Context context() const { return context_; }

 private:
  Driver& driver_;
  Context context_ = nullptr;
};

// Refuses what the device cannot do.
std::string target_for(const Plan& plan, const Device& device) {
  const std::string capability = std::to_string(device.major) + "." + std::to_string(device.minor);
  const std::string where = "device \"" + device.name + "\" has compute capability " + capability;
  const std::string target = target_of(device.major, device.minor);
  if (target.empty())
    throw LaunchError(Failure::unimplemented,
                      describe(plan) + where +
                          ", which has no tcgen05 instructions; allowed: 10.0, 10.3, 11.0" + kCpuAdvice);
  if (plan.opcode.kind == Kind::i8 && target == "sm_103a")  // PTX ISA 9.7.16.10, target notes
    throw LaunchError(Failure::unimplemented,
                      describe(plan) + where + ", which lacks .kind::i8; allowed: 10.0, 11.0" + kCpuAdvice);
  return target;
}

}  // namespace

std::string target_of(int major, int minor) {
  if (major == 10 && minor == 0) return "sm_100a";
  if (major == 10 && minor == 3) return "sm_103a";
  if (major == 11 && minor == 0) return "sm_110a";
  return "";
}

Launcher::Launcher(Driver& driver, std::string directory)
    : driver_(driver), directory_(std::move(directory)) {}

Launcher::Loaded& Launcher::loaded(const Plan& plan, Context context) {
  const auto found = contexts_.find(context);
  if (found != contexts_.end()) return found->second;
  Loaded fresh;
  check(driver_, plan, driver_.device(&fresh.device), "asking for the device's properties");
  return contexts_.emplace(context, std::move(fresh)).first->second;
}

Function Launcher::function(const Plan& plan, bool masked, Loaded& loaded) {
  const std::string entry = entry_name(plan.opcode, plan.a_in_tmem, masked);
  const auto found = loaded.functions.find(entry);
  if (found != loaded.functions.end()) return found->second;

  const std::string target = target_for(plan, loaded.device);
  const Kind kind = plan.opcode.kind;
  auto module = loaded.modules.find(kind);
  if (module == loaded.modules.end()) {
    const std::string name = std::string(kKindNames[static_cast<size_t>(kind)]) +
                             (driver_.wants_ptx() ? ".ptx" : "." + target + ".cubin");
    std::string image, reason = "the package's " + name + " is missing; reinstall it";
    if (!read_file(directory_ + "/" + name, &image)) {
      read_file(directory_ + "/unavailable.txt", &reason);
      throw LaunchError(Failure::unavailable, describe(plan) + "no device kernels: " + reason + kCpuAdvice);
    }
    Module handle = nullptr;
    check(driver_, plan, driver_.load_module(image, &handle), "loading " + name);
    module = loaded.modules.emplace(kind, handle).first;
  }
  Function handle = nullptr;
  check(driver_, plan, driver_.get_function(module->second, entry, &handle), "finding kernel " + entry);
  check(driver_, plan, driver_.allow_shared(handle, static_cast<uint32_t>(kSharedBudget)),
        "raising the shared-memory limit of " + entry);
  return loaded.functions.emplace(entry, handle).first->second;
}

void Launcher::prepare(const Plan& plan, bool masked, Stream stream) {
  const Entered entered(driver_, plan, stream);
  const std::lock_guard<std::mutex> lock(mutex_);
  Loaded& context = loaded(plan, entered.context());
  target_for(plan, context.device);
  const int64_t needed = shared_bytes(plan) + kOwnShared;
  if (needed > context.device.shared_per_block)
    throw LaunchError(Failure::exhausted, describe(plan) + "needs " + std::to_string(needed) +
                                              " bytes of shared memory per CTA; device \"" +
                                              context.device.name + "\" has " +
                                              std::to_string(context.device.shared_per_block));
  function(plan, masked, context);
}

void Launcher::execute(const Plan& plan, const Arrays& arrays, Stream stream) {
  if (arrays.batch_size == 0) return;
  const Params params = pack(plan, arrays);
  const Entered entered(driver_, plan, stream);
  Grid grid;
  Function kernel = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Loaded& context = loaded(plan, entered.context());
    kernel = function(plan, arrays.masked, context);
    grid = grid_for(plan, arrays.batch_size, context.device);
  }
  check(driver_, plan, driver_.launch(kernel, grid, stream, &params, sizeof(params)),
        "launching " + entry_name(plan.opcode, plan.a_in_tmem, arrays.masked));
}

}  // namespace tcgen05::launch

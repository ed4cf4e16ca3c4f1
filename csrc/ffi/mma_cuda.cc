// The custom call on a CUDA device: modules are loaded in the initialize stage, execute only launches, so
// that XLA may capture it in a CUDA graph.
#include "ffi/attributes.h"
#include "ffi/guard.h"
#include "ffi/handlers.h"
#include "launch/launcher.h"
#include "launch/libcuda.h"

namespace tcgen05 {
namespace {

namespace ffi = xla::ffi;
using Stream = ffi::PlatformStream<launch::Stream>;

launch::Launcher& launcher() {
  static launch::Launcher launcher(launch::libcuda(), kernel_directory());
  return launcher;
}

ffi::Error initialize(launch::Stream stream, ffi::RemainingArgs arguments, ffi::RemainingRets,
                      ffi::Dictionary attributes) {
  return guarded([&] {
    const Plan plan = read_plan(attributes);
    launcher().prepare(plan, has_mask(plan, arguments.size()), stream);
  });
}

ffi::Error execute(launch::Stream stream, ffi::RemainingArgs arguments, ffi::RemainingRets results,
                   ffi::Dictionary attributes) {
  return guarded([&] {
    const Plan plan = read_plan(attributes);
    launcher().execute(plan, read_arrays(plan, arguments, results), stream);
  });
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    kMmaCudaInitialize, initialize,
    ffi::Ffi::BindInitialize().Ctx<Stream>().RemainingArgs().RemainingRets().Attrs());

XLA_FFI_DEFINE_HANDLER_SYMBOL(kMmaCuda, execute,
                              ffi::Ffi::Bind().Ctx<Stream>().RemainingArgs().RemainingRets().Attrs(),
                              {ffi::Traits::kCmdBufferCompatible});

}  // namespace tcgen05

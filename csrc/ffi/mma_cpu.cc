// The custom call on a CPU: the functional model, or the device kernels on the virtual SM.
#include "ffi/handlers.h"

#include <exception>
#include <stdexcept>

#include "ffi/attributes.h"
#include "ffi/parallel.h"
#include "model/run_plan.h"

namespace tcgen05 {
namespace {

namespace ffi = xla::ffi;

void run_on_model(const Plan& plan, const Arrays& arrays, ffi::ThreadPool& pool) {
  const model::Program program(plan);
  parallel_for(
      arrays.batch_size, pool.num_threads(), [&](auto task) { pool.Schedule(std::move(task)); },
      [&](int64_t first, int64_t last) {
        model::Workspace workspace(program);
        for (int64_t n = first; n < last; ++n) run_plan(program, workspace, arrays, n);
      });
}

ffi::Error mma_cpu(ffi::ThreadPool pool, ffi::RemainingArgs arguments, ffi::RemainingRets results,
                   ffi::Dictionary attributes) {
  try {
    const Plan plan = read_plan(attributes);
    const Arrays arrays = read_arrays(plan, arguments, results);
    run_on_model(plan, arrays, pool);
    return ffi::Error::Success();
  } catch (const std::invalid_argument& error) {
    return ffi::Error::InvalidArgument(std::string("tcgen05.mma: ") + error.what());
  } catch (const std::exception& error) {
    return ffi::Error::Internal(std::string("tcgen05.mma: ") + error.what());
  }
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(kMmaCpu, mma_cpu,
                              ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().RemainingArgs().RemainingRets().Attrs());

}  // namespace tcgen05

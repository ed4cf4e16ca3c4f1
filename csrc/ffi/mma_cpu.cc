// The custom call on a CPU: the functional model, or the device kernels on the virtual SM.
#include "ffi/attributes.h"
#include "ffi/guard.h"
#include "ffi/handlers.h"
#include "ffi/parallel.h"
#include "launch/launcher.h"
#include "model/run_plan.h"
#include "vsm/driver.h"

namespace tcgen05 {
namespace {

namespace ffi = xla::ffi;

// The arrays of batch element `n`.
model::Operands operands_at(const Plan& plan, const Arrays& arrays, int64_t n) {
  const std::vector<int64_t> index = arrays.coordinates(n);
  const auto bytes = [&](const Array& array, int cta) {
    return array.data == nullptr ? nullptr : reinterpret_cast<uint8_t*>(array.at(cta, index));
  };
  model::Operands out;
  for (int cta = 0; cta < plan.opcode.cta_group; ++cta) {
    out.d_in[cta] = bytes(arrays.d_in, cta);
    out.d_out[cta] = bytes(arrays.d_out, cta);
    out.a[cta] = bytes(arrays.a, cta);
    out.b[cta] = bytes(arrays.b, cta);
    out.sfa[cta] = bytes(arrays.sfa, cta);
    out.sfb[cta] = bytes(arrays.sfb, cta);
  }
  out.accum = *bytes(arrays.accum, 0) != 0;
  out.pred = *bytes(arrays.pred, 0) != 0;
  if (arrays.masked) {
    const auto* words = reinterpret_cast<const uint32_t*>(bytes(arrays.mask, 0));
    if (plan.opcode.ws)
      out.zero_column_mask = words[0] | uint64_t{words[1]} << 32;
    else
      out.disable_output_lane = words;
  }
  return out;
}

void run_on_model(const Plan& plan, const Arrays& arrays, ffi::ThreadPool& pool) {
  const model::PreparedPlan prepared(plan);
  parallel_for(
      arrays.batch_size, pool.num_threads(), [&](auto task) { pool.Schedule(std::move(task)); },
      [&](int64_t first, int64_t last) {
        model::Workspace workspace(prepared);
        for (int64_t n = first; n < last; ++n) workspace.run(operands_at(plan, arrays, n));
      });
}

// The device kernels' PTX, by the launcher's own way. Buffers get virtual addresses, so that bounds are
// checked.
void run_on_virtual_sm(const Plan& plan, Arrays arrays, unsigned threads, bool strict) {
  static launch::Launcher launcher(vsm::virtual_driver(), kernel_directory());
  vsm::DriverCall call;
  call.threads = threads;
  call.strict = strict;
  const auto give = [&](Array& array, bool writable, const char* name) {
    if (array.data == nullptr || array.bytes == 0) return;
    array.data = reinterpret_cast<char*>(call.memory.add(array.data, array.bytes, writable, name));
  };
  const bool in_place = arrays.d_in.data == arrays.d_out.data;
  give(arrays.d_out, true, "result");
  if (in_place)
    arrays.d_in.data = arrays.d_out.data;
  else
    give(arrays.d_in, false, "d");
  give(arrays.a, false, "a");
  give(arrays.b, false, "b");
  give(arrays.sfa, false, "sfa");
  give(arrays.sfb, false, "sfb");
  give(arrays.accum, false, "accum");
  give(arrays.pred, false, "pred");
  give(arrays.mask, false, "mask");
  try {
    launcher.execute(plan, arrays, &call);
  } catch (const launch::LaunchError&) {
    if (call.error) std::rethrow_exception(call.error);
    throw;
  }
}

ffi::Error mma_cpu(ffi::ThreadPool pool, ffi::RemainingArgs arguments, ffi::RemainingRets results,
                   ffi::Dictionary attributes) {
  return guarded([&] {
    const Plan plan = read_plan(attributes);
    const Arrays arrays = read_arrays(plan, arguments, results);
    const std::string executor = read_executor(attributes);
    if (executor == "model")
      run_on_model(plan, arrays, pool);
    else
      run_on_virtual_sm(plan, arrays, static_cast<unsigned>(pool.num_threads()), executor == "vsm-strict");
  });
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    kMmaCpu, mma_cpu, ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().RemainingArgs().RemainingRets().Attrs());

}  // namespace tcgen05

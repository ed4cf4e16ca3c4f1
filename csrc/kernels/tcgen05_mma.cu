// The entries of one compilation unit: -DTCGEN05_UNIT=<kind> picks the kind's rows of launch/variants.h.
#include "kernels/kernel.cuh"
#include "launch/variants.h"

#define TCGEN05_IS_WS_dense false
#define TCGEN05_IS_WS_ws true
#define TCGEN05_IN_TMEM_ss false
#define TCGEN05_IN_TMEM_ts true
#define TCGEN05_IS_SCALED_v0 false
#define TCGEN05_IS_SCALED_v1 true
#define TCGEN05_IS_SCALED_v2 true
#define TCGEN05_IS_SCALED_v4 true
#define TCGEN05_IS_MASKED_plain false
#define TCGEN05_IS_MASKED_mask true

#define TCGEN05_DEFINE_ENTRY(KIND, GROUP, FORM, VEC, A, EXTRA)                                             \
  namespace units {                                                                                        \
  TCGEN05_DEFINE_ISSUE(Issue_##KIND##_##GROUP##_##FORM##_##VEC##_##A##_##EXTRA, KIND, GROUP, FORM, VEC, A, \
                       EXTRA)                                                                              \
  }                                                                                                        \
  extern "C" __global__ __launch_bounds__(::tcgen05::launch::kThreads) void TCGEN05_ENTRY(                 \
      KIND, GROUP, FORM, VEC, A, EXTRA)(const __grid_constant__::tcgen05::launch::Params p) {              \
    ::tcgen05::kernels::run<units::Issue_##KIND##_##GROUP##_##FORM##_##VEC##_##A##_##EXTRA, GROUP,         \
                            TCGEN05_IS_WS_##FORM, TCGEN05_IN_TMEM_##A, TCGEN05_IS_SCALED_##VEC,            \
                            TCGEN05_IS_MASKED_##EXTRA>(p);                                                 \
  }

#define TCGEN05_UNIT_VARIANTS_(UNIT) TCGEN05_VARIANTS_##UNIT(TCGEN05_DEFINE_ENTRY)
#define TCGEN05_UNIT_VARIANTS(UNIT) TCGEN05_UNIT_VARIANTS_(UNIT)
TCGEN05_UNIT_VARIANTS(TCGEN05_UNIT)

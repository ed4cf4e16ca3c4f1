// tcgen05.mma in every spelling of launch/variants.h (PTX ISA 9.0, 9.7.16.10). Assembly is text, so the
// spellings are put together by the preprocessor: TCGEN05_DEFINE_ISSUE makes one function of a row.
#pragma once

#include <cstdint>

namespace tcgen05::kernels {

struct Mma {
  uint32_t d;
  uint64_t a;  // shared-memory descriptor, or TMEM address
  uint64_t b;
  uint32_t idesc;
  uint32_t accumulate;  // enable-input-d
  uint32_t sfa, sfb;
  uint64_t zero_columns;
  uint32_t lanes[8];
};

}  // namespace tcgen05::kernels

// clang-format off
#define TCGEN05_FORM_dense ""
#define TCGEN05_FORM_ws ".ws"
#define TCGEN05_VEC_v0 ""
#define TCGEN05_VEC_v1 ".block_scale.scale_vec::1X"
#define TCGEN05_VEC_v2 ".block_scale.scale_vec::2X"
#define TCGEN05_VEC_v4 ".block_scale.scale_vec::4X"

#define TCGEN05_A_TEXT_ss "%1"
#define TCGEN05_A_TEXT_ts "[%1]"
#define TCGEN05_A_VALUE_ss "l"(i.a)
#define TCGEN05_A_VALUE_ts "r"(static_cast<uint32_t>(i.a))

// Operands from %5 on: a row has scales, a lane mask or a zero-column mask, never two of them.
#define TCGEN05_SCALES_TEXT_v0 ""
#define TCGEN05_SCALES_TEXT_v1 "[%5], [%6], "
#define TCGEN05_SCALES_TEXT_v2 TCGEN05_SCALES_TEXT_v1
#define TCGEN05_SCALES_TEXT_v4 TCGEN05_SCALES_TEXT_v1
#define TCGEN05_SCALES_VALUE_v0
#define TCGEN05_SCALES_VALUE_v1 , "r"(i.sfa), "r"(i.sfb)
#define TCGEN05_SCALES_VALUE_v2 TCGEN05_SCALES_VALUE_v1
#define TCGEN05_SCALES_VALUE_v4 TCGEN05_SCALES_VALUE_v1

#define TCGEN05_LANES_TEXT_dense_plain_1 ""
#define TCGEN05_LANES_TEXT_dense_plain_2 ""
#define TCGEN05_LANES_TEXT_ws_plain_1 ""
#define TCGEN05_LANES_TEXT_ws_mask_1 ""
#define TCGEN05_LANES_TEXT_dense_mask_1 "{%5, %6, %7, %8}, "
#define TCGEN05_LANES_TEXT_dense_mask_2 "{%5, %6, %7, %8, %9, %10, %11, %12}, "
#define TCGEN05_COLUMNS_TEXT_dense_plain ""
#define TCGEN05_COLUMNS_TEXT_dense_mask ""
#define TCGEN05_COLUMNS_TEXT_ws_plain ""
#define TCGEN05_COLUMNS_TEXT_ws_mask ", %5"

#define TCGEN05_EXTRA_VALUE_dense_plain_1
#define TCGEN05_EXTRA_VALUE_dense_plain_2
#define TCGEN05_EXTRA_VALUE_ws_plain_1
#define TCGEN05_EXTRA_VALUE_ws_mask_1 , "l"(i.zero_columns)
#define TCGEN05_EXTRA_VALUE_dense_mask_1 \
  , "r"(i.lanes[0]), "r"(i.lanes[1]), "r"(i.lanes[2]), "r"(i.lanes[3])
#define TCGEN05_EXTRA_VALUE_dense_mask_2 TCGEN05_EXTRA_VALUE_dense_mask_1 \
  , "r"(i.lanes[4]), "r"(i.lanes[5]), "r"(i.lanes[6]), "r"(i.lanes[7])

#define TCGEN05_ONE(NUMBER, COLLECTOR, KIND, GROUP, FORM, VEC, A, EXTRA)                          \
  case NUMBER:                                                                                    \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %4, 0; "                                         \
                 "tcgen05.mma" TCGEN05_FORM_##FORM ".cta_group::" #GROUP ".kind::" #KIND          \
                 TCGEN05_VEC_##VEC ".collector::" COLLECTOR " [%0], " TCGEN05_A_TEXT_##A          \
                 ", %2, %3, " TCGEN05_SCALES_TEXT_##VEC                                           \
                 TCGEN05_LANES_TEXT_##FORM##_##EXTRA##_##GROUP "p"                                \
                 TCGEN05_COLUMNS_TEXT_##FORM##_##EXTRA "; }"                                      \
                 ::"r"(i.d), TCGEN05_A_VALUE_##A, "l"(i.b), "r"(i.idesc), "r"(i.accumulate)       \
                 TCGEN05_SCALES_VALUE_##VEC TCGEN05_EXTRA_VALUE_##FORM##_##EXTRA##_##GROUP        \
                 : "memory");                                                                     \
    break;

#define TCGEN05_FOUR(FIRST, BUFFER, ...)                    \
  TCGEN05_ONE(FIRST, BUFFER "::fill", __VA_ARGS__)          \
  TCGEN05_ONE(FIRST + 1, BUFFER "::use", __VA_ARGS__)       \
  TCGEN05_ONE(FIRST + 2, BUFFER "::lastuse", __VA_ARGS__)   \
  TCGEN05_ONE(FIRST + 3, BUFFER "::discard", __VA_ARGS__)
#define TCGEN05_COLLECTORS_dense(...) TCGEN05_FOUR(0, "a", __VA_ARGS__)
#define TCGEN05_COLLECTORS_ws(...)                                        \
  TCGEN05_FOUR(0, "b0", __VA_ARGS__) TCGEN05_FOUR(4, "b1", __VA_ARGS__)   \
  TCGEN05_FOUR(8, "b2", __VA_ARGS__) TCGEN05_FOUR(12, "b3", __VA_ARGS__)
// clang-format on

// `collector` as in launch::Params; leaving the modifier out means discard.
#define TCGEN05_DEFINE_ISSUE(NAME, KIND, GROUP, FORM, VEC, A, EXTRA)                                     \
  struct NAME {                                                                                          \
    static __device__ __forceinline__ void issue(uint32_t collector, const ::tcgen05::kernels::Mma& i) { \
      switch (collector) { TCGEN05_COLLECTORS_##FORM(KIND, GROUP, FORM, VEC, A, EXTRA) }                 \
    }                                                                                                    \
  };

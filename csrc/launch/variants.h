// The device kernels: one entry for each row of these tables. X is applied to
//   (kind, group, form, vec, a, extra)
// kind   also the name of the compilation unit that holds its kernels
// group  CTAs of one instruction: 1 or 2
// form   dense or ws
// vec    v0, or the scale bytes per row and K step: v1, v2, v4
// a      ss: A in shared memory, ts: A in TMEM
// extra  plain, or mask: with a lane mask (dense) or a zero-column mask (.ws)
// A chosen collector is a run-time switch inside a kernel.
#pragma once

#include <string>

#include "plan/opcode.h"

// clang-format off
#define TCGEN05_DENSE_VARIANTS(X, KIND)                                              \
  X(KIND, 1, dense, v0, ss, plain) X(KIND, 1, dense, v0, ss, mask)                   \
  X(KIND, 1, dense, v0, ts, plain) X(KIND, 1, dense, v0, ts, mask)                   \
  X(KIND, 2, dense, v0, ss, plain) X(KIND, 2, dense, v0, ss, mask)                   \
  X(KIND, 2, dense, v0, ts, plain) X(KIND, 2, dense, v0, ts, mask)                   \
  X(KIND, 1, ws, v0, ss, plain) X(KIND, 1, ws, v0, ss, mask)                         \
  X(KIND, 1, ws, v0, ts, plain) X(KIND, 1, ws, v0, ts, mask)
#define TCGEN05_BLOCK_SCALED_VARIANTS(X, KIND, VEC)                                  \
  X(KIND, 1, dense, VEC, ss, plain) X(KIND, 1, dense, VEC, ts, plain)                \
  X(KIND, 2, dense, VEC, ss, plain) X(KIND, 2, dense, VEC, ts, plain)

#define TCGEN05_VARIANTS_f16(X) TCGEN05_DENSE_VARIANTS(X, f16)
#define TCGEN05_VARIANTS_tf32(X) TCGEN05_DENSE_VARIANTS(X, tf32)
#define TCGEN05_VARIANTS_f8f6f4(X) TCGEN05_DENSE_VARIANTS(X, f8f6f4)
#define TCGEN05_VARIANTS_i8(X) TCGEN05_DENSE_VARIANTS(X, i8)
#define TCGEN05_VARIANTS_mxf8f6f4(X) TCGEN05_BLOCK_SCALED_VARIANTS(X, mxf8f6f4, v1)
#define TCGEN05_VARIANTS_mxf4(X) TCGEN05_BLOCK_SCALED_VARIANTS(X, mxf4, v2)
#define TCGEN05_VARIANTS_mxf4nvf4(X)                                                 \
  TCGEN05_BLOCK_SCALED_VARIANTS(X, mxf4nvf4, v2) TCGEN05_BLOCK_SCALED_VARIANTS(X, mxf4nvf4, v4)
// clang-format on

// The entry's name, as a token: tcgen05_mma_f16_g1_dense_v0_ss_plain.
#define TCGEN05_ENTRY(KIND, GROUP, FORM, VEC, A, EXTRA) \
  tcgen05_mma_##KIND##_g##GROUP##_##FORM##_##VEC##_##A##_##EXTRA

namespace tcgen05::launch {

// The entry for a call; the same spelling as TCGEN05_ENTRY.
inline std::string entry_name(const Opcode& opcode, bool a_in_tmem, bool masked) {
  return "tcgen05_mma_" + std::string(kKindNames[static_cast<size_t>(opcode.kind)]) + "_g" +
         std::to_string(opcode.cta_group) + (opcode.ws ? "_ws" : "_dense") + "_v" +
         std::to_string(opcode.scale_vec) + (a_in_tmem ? "_ts" : "_ss") + (masked ? "_mask" : "_plain");
}

}  // namespace tcgen05::launch

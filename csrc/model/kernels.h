// The vector kernels: 32 columns of one row at a time. What they cannot do exactly they mark in `slow`,
// and tile.cc asks dot().
#pragma once

#include <cstdint>

#include "model/panel.h"

namespace tcgen05::model {

// One block of rows times one block of columns.
struct KernelArgs {
  const Arithmetic* arithmetic = nullptr;
  const Block* a = nullptr;
  const Block* b = nullptr;
  const ScaleBlock* a_scales = nullptr;  // block scaled only
  const ScaleBlock* b_scales = nullptr;
  int rows = 0;
  uint32_t* const* d = nullptr;  // cells per row of the block, nullptr: leave the row alone
  int columns = kBlock;          // live lanes of b
  bool enable_input_d = true;
  // Called for the marked lanes of one row (bit l: lane l), with the accumulators as they were.
  void (*redo)(void* context, int row, const uint32_t* c, uint32_t slow) = nullptr;
  void* context = nullptr;
};

void run_kernel(const KernelArgs& args);

// The same for all kinds but i8 where the processor has AVX-512; false: nothing done.
bool run_avx512(const KernelArgs& args);

// sum[lane] += the products of one row with a block of columns, of `Block::signs`, in IEEE arithmetic.
struct SignsArgs {
  const float (*a)[kBlock];
  const float (*b)[kBlock];
  int row, k;
  float* sum;
};
void add_signs(const SignsArgs& args);

// Lanes of a block with infinities or NaNs, scales included; a kernel leaves them to `redo`.
inline uint32_t special_lanes(const Block& block, const ScaleBlock* scales) {
  uint32_t lanes = 0;
  for (int lane = 0; lane < kBlock; ++lane) {
    const bool special = block.special[lane] != 0 || (scales != nullptr && scales->nan[lane] != 0);
    lanes |= static_cast<uint32_t>(special) << lane;
  }
  return lanes;
}

}  // namespace tcgen05::model

#include "model/tile.h"

#include <algorithm>
#include <cmath>

#include "model/kernels.h"

namespace tcgen05::model {
namespace {

struct Redo {
  const TileJob* job;
  const KernelArgs* args;
  int first_row, first_column;  // of the blocks
  uint32_t* const* d;
  int columns;
};

// An accumulator as far as infinities and NaNs go.
float mark_of(Accumulator d, uint32_t bits) {
  const Number c = d == Accumulator::f16 ? decode_f16(bits) : decode_f32(bits);
  const float value = c.kind == Number::nan ? NAN : c.kind == Number::infinity ? INFINITY : 0.0f;
  return c.negative ? -value : value;
}

// Infinities and NaNs of a row, all columns of the block at once: IEEE arithmetic has the rules of
// numerics.md 4, and the other terms are too small to overflow. Returns the lanes that it settled.
uint32_t redo_special(const Redo& at, int row, const uint32_t* c, uint32_t slow) {
  const Arithmetic& arithmetic = *at.job->arithmetic;
  float sum[kBlock];
  for (int lane = 0; lane < kBlock; ++lane)
    sum[lane] = (slow >> lane) & 1 ? mark_of(arithmetic.d, c[lane]) : 0;
  add_signs({at.args->a->signs(), at.args->b->signs(), row, arithmetic.k, sum});
  const ScaleBlock *a_scales = at.args->a_scales, *b_scales = at.args->b_scales;
  for (int lane = 0; a_scales != nullptr && lane < kBlock; ++lane) {
    if (a_scales->nan[row] != 0 || b_scales->nan[lane] != 0) sum[lane] = NAN;
  }
  uint32_t settled = 0;
  for (int lane = 0; lane < at.columns; ++lane) {
    if (((slow >> lane) & 1) == 0 || std::isfinite(sum[lane])) continue;
    at.d[row][lane] = special_bits(arithmetic.d, sum[lane]);
    settled |= 1u << lane;
  }
  return settled;
}

// The marked elements of one row, by dot().
void redo(void* context, int row, const uint32_t* c, uint32_t slow) {
  const Redo& at = *static_cast<const Redo*>(context);
  const TileJob& job = *at.job;
  const Arithmetic& arithmetic = *job.arithmetic;
  if (at.columns < kBlock) slow &= (1u << at.columns) - 1;
  slow &= ~redo_special(at, row, c, slow);
  if (slow == 0) return;
  uint32_t codes[kMaxK];
  const auto decoded = [&](const Panel& panel, Format format, bool negate, const uint8_t (*scales)[4],
                           int index) {
    unpack_codes(panel.container(), panel.raw(index), codes);
    return decode_operand(format, arithmetic, negate, codes, scales == nullptr ? nullptr : scales[index]);
  };
  const DotOperand a = decoded(*job.a, arithmetic.a, arithmetic.negate_a, job.sfa, at.first_row + row);
  for (int lane = 0; lane < at.columns; ++lane) {
    if (((slow >> lane) & 1) == 0) continue;
    const DotOperand b = decoded(*job.b, arithmetic.b, arithmetic.negate_b, job.sfb, at.first_column + lane);
    at.d[row][lane] = finite_dot(arithmetic, a, b, c[lane]);
  }
}

}  // namespace

void multiply(const TileJob& job) {
  const Arithmetic& arithmetic = *job.arithmetic;
  const bool scaled = arithmetic.scale != ScaleFormat::none;
  const int groups = arithmetic.grouped ? kGroups : 1;
  for (int row = job.row_begin; row < job.row_end; row += kBlock) {
    KernelArgs args;
    args.arithmetic = &arithmetic;
    args.a = &job.a->block(row / kBlock);
    args.rows = std::min(kBlock, job.row_end - row);
    args.enable_input_d = job.enable_input_d;
    ScaleBlock a_scales, b_scales;
    if (scaled) {
      decode_scales(arithmetic.scale, groups, arithmetic.scales(), args.rows, job.sfa + row, a_scales);
      args.a_scales = &a_scales;
      args.b_scales = &b_scales;
    }
    for (int column = 0; column < job.bank_columns; column += kBlock) {
      uint32_t* d[kBlock];
      for (int i = 0; i < args.rows; ++i)
        d[i] = job.d[row + i] == nullptr ? nullptr : job.d[row + i] + column;
      args.d = d;
      args.columns = std::min(kBlock, job.bank_columns - column);
      args.b = &job.b->block(job.bank * job.b->blocks_per_bank() + column / kBlock);
      Redo again{&job, &args, row, job.bank * job.bank_columns + column, d, args.columns};
      if (scaled) {
        b_scales = ScaleBlock();
        decode_scales(arithmetic.scale, groups, arithmetic.scales(), args.columns,
                      job.sfb + again.first_column, b_scales);
      }
      args.redo = redo;
      args.context = &again;
      run_kernel(args);
    }
  }
}

}  // namespace tcgen05::model

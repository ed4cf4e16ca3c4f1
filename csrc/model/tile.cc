#include "model/tile.h"

#include <algorithm>

#include "model/kernels.h"

namespace tcgen05::model {
namespace {

struct Redo {
  const TileJob* job;
  int first_row, first_column;  // of the blocks
  uint32_t* const* d;
  int columns;
};

// The marked elements of one row, by dot().
void redo(void* context, int row, const uint32_t* c, uint32_t slow) {
  const Redo& at = *static_cast<const Redo*>(context);
  const TileJob& job = *at.job;
  uint32_t a[kMaxK], b[kMaxK];
  unpack_codes(job.a->container(), job.a->raw(at.first_row + row), a);
  for (int lane = 0; lane < at.columns; ++lane) {
    if (((slow >> lane) & 1) == 0) continue;
    const int column = at.first_column + lane;
    unpack_codes(job.b->container(), job.b->raw(column), b);
    at.d[row][lane] =
        dot(*job.arithmetic, a, b, c[lane], job.sfa == nullptr ? nullptr : job.sfa[at.first_row + row],
            job.sfb == nullptr ? nullptr : job.sfb[column]);
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
      Redo again{&job, row, job.bank * job.bank_columns + column, d, args.columns};
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

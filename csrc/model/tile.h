// Products of whole tiles: the arithmetic of dot.h on many elements at once, bit for bit.
#pragma once

#include <cstdint>

#include "model/dot.h"
#include "model/panel.h"

namespace tcgen05::model {

// D[row_begin .. row_end) x the columns of one bank += A B^T.
struct TileJob {
  const Arithmetic* arithmetic = nullptr;
  const Panel* a = nullptr;  // built as one bank
  const Panel* b = nullptr;
  const uint8_t (*sfa)[4] = nullptr;  // scale bytes per row of A, and per column of B (all banks)
  const uint8_t (*sfb)[4] = nullptr;
  int row_begin = 0, row_end = 0;  // row_begin is a multiple of 32
  int bank = 0, bank_columns = 0;
  uint32_t* const* d = nullptr;  // d[row]: the row's cells, or nullptr for a disabled lane
  bool enable_input_d = true;
};

void multiply(const TileJob& job);

}  // namespace tcgen05::model

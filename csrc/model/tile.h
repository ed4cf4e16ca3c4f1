// Products of whole tiles: operands decoded once (Panel), then the arithmetic of dot.h on every element.
#pragma once

#include <cstdint>
#include <vector>

#include "model/form.h"
#include "model/shared_walk.h"

namespace tcgen05::model {

// The stored bytes of one operand and K step: 32 per row of A or column of B.
struct RawRows {
  uint8_t bytes[kMaxRows][kStepBytes];
};

// The codes of one row.
void unpack_codes(Container container, const uint8_t* row, uint32_t* codes);

struct TileJob {
  const Arithmetic* arithmetic = nullptr;
  Container a_container{}, b_container{};
  const RawRows* a = nullptr;
  const RawRows* b = nullptr;
  const uint8_t (*sfa)[4] = nullptr;  // scale bytes per row of A, per column of B
  const uint8_t (*sfb)[4] = nullptr;
  int row_begin = 0, row_end = 0;
  int column_begin = 0, columns = 0;
  uint32_t* const* d = nullptr;  // d[row]: the row's cells, or nullptr for a disabled lane
  bool enable_input_d = true;
};

void multiply(const TileJob& job);

}  // namespace tcgen05::model

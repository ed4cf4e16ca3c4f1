// The walk of a shared-memory operand (ptx_contract 5.1, 5.2): where its 16-byte chunks lie.
#pragma once

#include <cstdint>

#include "model/descriptors.h"

namespace tcgen05::model {

inline constexpr int kChunk = 16;
inline constexpr int kMaxRows = 256;
inline constexpr int kMaxChunks = kMaxRows * 2;  // every K step has 32 stored bytes per row

// The permutation acts on the shared address itself, not on the offset from the descriptor's start.
inline uint32_t swizzled(uint32_t address, int mode) {
  if (mode == 4) return address ^ ((address >> 2) & 0x60);
  return address ^ ((address >> 3) & (((1u << mode) - 1) << 4));
}

// Number of chunks: K-major, chunk 2 * r + c is the c-th half of row r's 32 bytes; MN-major, chunk
// k * pieces + p holds elements p * 16 / element_bytes .. of row k, with pieces = rows * element_bytes / 16.
inline int walk(const SharedDescriptor& d, bool mn_major, int rows, int element_bytes, uint32_t* chunks) {
  const uint32_t row_bytes = 16u << (d.swizzle == 4 ? 3 : d.swizzle);
  if (!mn_major) {
    const uint32_t chunk_stride = d.swizzle == 0 ? d.ldo : kChunk;
    for (int r = 0; r < rows; ++r) {
      const uint32_t row = d.start + (r % 8) * row_bytes + (r / 8) * d.sdo;
      chunks[2 * r] = swizzled(row, d.swizzle);
      chunks[2 * r + 1] = swizzled(row + chunk_stride, d.swizzle);
    }
    return 2 * rows;
  }
  const int k_rows = 32 / element_bytes, pieces = rows * element_bytes / kChunk;
  const int group = d.swizzle == 4 ? 4 : 8, chunks_per_row = static_cast<int>(row_bytes) / kChunk;
  // Without a swizzle the two strides change places.
  const uint32_t group_stride = d.swizzle == 0 ? d.ldo : d.sdo;
  const uint32_t piece_stride = d.swizzle == 0 ? d.sdo : d.ldo;
  int n = 0;
  for (int k = 0; k < k_rows; ++k) {
    const uint32_t row = d.start + (k % group) * row_bytes + (k / group) * group_stride;
    for (int p = 0; p < pieces; ++p) {
      const uint32_t address = row + (p / chunks_per_row) * piece_stride + (p % chunks_per_row) * kChunk;
      chunks[n++] = swizzled(address, d.swizzle);
    }
  }
  return n;
}

}  // namespace tcgen05::model

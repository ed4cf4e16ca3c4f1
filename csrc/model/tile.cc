#include "model/tile.h"

#include <cstring>

namespace tcgen05::model {

void unpack_codes(Container container, const uint8_t* row, uint32_t* codes) {
  switch (container) {
    case Container::plain8:
      for (int k = 0; k < 32; ++k) codes[k] = row[k];
      return;
    case Container::plain16:
      for (int k = 0; k < 16; ++k) codes[k] = row[2 * k] | row[2 * k + 1] << 8;
      return;
    case Container::plain32:
      std::memcpy(codes, row, 32);
      return;
    case Container::nibbles:
      for (int k = 0; k < 64; ++k) codes[k] = (row[k / 2] >> (4 * (k % 2))) & 15;
      return;
    case Container::fp6_padded:
      for (int k = 0; k < 32; ++k) {
        const uint8_t* block = row + 16 * (k / 16);
        const int bit = 6 * (k % 16);
        codes[k] = ((block[bit / 8] | block[bit / 8 + 1] << 8) >> (bit % 8)) & 63;
      }
      return;
    case Container::fp4_padded:
      for (int k = 0; k < 32; ++k) codes[k] = (row[16 * (k / 16) + k % 16 / 2] >> (4 * (k % 2))) & 15;
      return;
    case Container::fp6_byte:
      for (int k = 0; k < 32; ++k) codes[k] = row[k] & 63;
      return;
    case Container::fp4_byte:
      for (int k = 0; k < 32; ++k) codes[k] = (row[k] >> 2) & 15;
      return;
  }
}

void multiply(const TileJob& job) {
  const Arithmetic& arithmetic = *job.arithmetic;
  std::vector<uint32_t> b(static_cast<size_t>(job.columns) * kMaxK);
  for (int j = 0; j < job.columns; ++j) {
    unpack_codes(job.b_container, job.b->bytes[job.column_begin + j], &b[static_cast<size_t>(j) * kMaxK]);
  }
  for (int i = job.row_begin; i < job.row_end; ++i) {
    uint32_t* d = job.d[i];
    if (d == nullptr) continue;
    uint32_t a[kMaxK];
    unpack_codes(job.a_container, job.a->bytes[i], a);
    for (int j = 0; j < job.columns; ++j) {
      const uint8_t* sfa = job.sfa == nullptr ? nullptr : job.sfa[i];
      const uint8_t* sfb = job.sfb == nullptr ? nullptr : job.sfb[job.column_begin + j];
      // A float16 D is the low half of its cell; the high half is written 0.
      d[j] = dot(arithmetic, a, &b[static_cast<size_t>(j) * kMaxK], job.enable_input_d ? d[j] : 0, sfa, sfb);
    }
  }
}

}  // namespace tcgen05::model

// 16 stored bytes to 16 elements of 8 bits, as tcgen05.cp and ldmatrix do it (.b8x16.b6x16_p32 and
// .b8x16.b4x16_p64): fp6 in bits 0-5 of its byte, fp4 in bits 2-5 (ptx_contract 13.2).
#pragma once

#include <cstdint>
#include <cstring>

namespace tcgen05::vsm {

inline void decompress_fp4(uint8_t* chunk) {
  uint8_t out[16];
  for (int i = 0; i < 16; ++i) out[i] = static_cast<uint8_t>((chunk[i / 2] >> (4 * (i & 1)) & 15) << 2);
  std::memcpy(chunk, out, 16);
}

inline void decompress_fp6(uint8_t* chunk) {
  uint8_t out[16];
  for (int i = 0; i < 16; ++i) {
    const int bit = 6 * i;
    const uint32_t two = chunk[bit / 8] | static_cast<uint32_t>(chunk[bit / 8 + 1]) << 8;
    out[i] = static_cast<uint8_t>(two >> (bit % 8) & 63);
  }
  std::memcpy(chunk, out, 16);
}

}  // namespace tcgen05::vsm

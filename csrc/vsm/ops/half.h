// 16-bit floating point as float, and as types that templates can tell from integers.
#pragma once

#include "vsm/ops/number.h"

namespace tcgen05::vsm {

inline float bits_to_float(uint32_t b) { return bit_copy<float>(b); }
inline uint32_t float_to_bits(float f) { return bit_copy<uint32_t>(f); }

inline float bf16_to_float(uint16_t b) { return half_value<BF16>(b); }
inline float f16_to_float(uint16_t h) { return half_value<F16>(h); }

struct Half {
  uint16_t bits;
  explicit operator float() const { return f16_to_float(bits); }
};
struct BHalf {
  uint16_t bits;
  explicit operator float() const { return bf16_to_float(bits); }
};

// To nearest even. Sums and products of two halves are given as doubles: those have more than twice the
// digits, so rounding twice does no harm.
inline uint16_t to_f16(double d) { return static_cast<uint16_t>(encode_number<F16>(d, Rounding::nearest)); }
inline uint16_t to_bf16(double d) { return static_cast<uint16_t>(encode_number<BF16>(d, Rounding::nearest)); }

}  // namespace tcgen05::vsm

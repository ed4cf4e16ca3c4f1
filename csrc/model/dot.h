// One output element of one instruction, exactly: D = dot(A row, B column) + C (numerics.md 1-4).
// This is the plain statement of the arithmetic; tile.h computes whole tiles and falls back on it.
#pragma once

#include <cstdint>

#include "model/formats.h"

namespace tcgen05::model {

// The sign of a negative sum that is too small for the result format: nobody has measured it
// (numerics.md 7.3). false: +0.
inline constexpr bool SIGNED_UNDERFLOW = false;

inline constexpr uint32_t kNanF32 = 0x7FFFFFFF;
inline constexpr uint32_t kNanF16 = 0x7FFF;

struct Arithmetic {
  Format a = Format::f16, b = Format::f16;
  Accumulator d = Accumulator::f32;
  ScaleFormat scale = ScaleFormat::none;
  int k = 16;            // products per instruction
  int scale_block = 0;   // elements of K per scale; 0 without scales
  bool grouped = false;  // FP4 block-scaled kinds: exact groups of 16 (numerics.md 2)
  bool negate_a = false, negate_b = false;
  bool saturate = false;  // int8: clamp once, on the exact total (numerics.md 3)

  bool integer() const { return d == Accumulator::s32; }
  int scales() const { return scale_block == 0 ? 0 : k / scale_block; }
};

inline constexpr int kMaxK = 64;
inline constexpr int kGroup = 16;  // elements of one exact group of the FP4 block-scaled kinds

// How many fraction bits below the top exponent are kept, and the lowest top exponent.
inline constexpr int kFractionBits = 25, kGroupedFractionBits = 35;
inline constexpr int kFloorF32 = -133, kFloorF16 = -21, kGroupedFloor = -139;

// Bits of D where infinities or NaNs decide: `value` is what IEEE arithmetic makes of the terms' signs and
// specials. Call it for values that are not finite.
uint32_t special_bits(Accumulator d, float value);

// One row of A or column of B, decoded: k numbers and the scales of its k / scale_block blocks.
struct DotOperand {
  Number number[kMaxK];
  Number scale[4];
};
DotOperand decode_operand(Format format, const Arithmetic& arithmetic, bool negate, const uint32_t* codes,
                          const uint8_t* scales);

// `c`: bits of the accumulator (0 when enable-input-d is false). Returns D's bits.
uint32_t dot(const Arithmetic& arithmetic, const DotOperand& a, const DotOperand& b, uint32_t c);

// The same where it is known that no infinity and no NaN takes part.
uint32_t finite_dot(const Arithmetic& arithmetic, const DotOperand& a, const DotOperand& b, uint32_t c);

// `dot` from codes.
uint32_t dot(const Arithmetic& arithmetic, const uint32_t* a, const uint32_t* b, uint32_t c,
             const uint8_t* sfa, const uint8_t* sfb);

}  // namespace tcgen05::model

#include "model/dot.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tcgen05::model {
namespace {

// Cuts magnitude * 2^shift to an integer, toward zero.
int64_t shifted(int64_t magnitude, int shift) {
  if (shift >= 0) return magnitude << shift;
  return shift > -63 ? magnitude >> -shift : 0;
}

int highest_bit(uint64_t value) { return 63 - __builtin_clzll(value); }

// sum * 2^unit, truncated toward zero to float32.
uint32_t to_f32(int64_t sum, int unit) {
  if (sum == 0) return 0;
  const uint32_t sign = sum < 0 ? 0x80000000u : 0u;
  const uint64_t magnitude = sum < 0 ? -static_cast<uint64_t>(sum) : static_cast<uint64_t>(sum);
  const int top = highest_bit(magnitude);
  const int exponent = top + unit;
  if (exponent >= 128) return sign | 0x7F800000u;
  const int drop = std::max(top - 23, -149 - unit);
  const uint64_t kept = static_cast<uint64_t>(shifted(static_cast<int64_t>(magnitude), -drop));
  if (kept == 0) return SIGNED_UNDERFLOW ? sign : 0u;
  if (exponent < -126) return sign | static_cast<uint32_t>(kept);
  return sign | ((static_cast<uint32_t>(exponent + 126) << 23) + static_cast<uint32_t>(kept));
}

// sum * 2^unit, rounded to nearest even to float16.
uint32_t to_f16(int64_t sum, int unit) {
  if (sum == 0) return 0;
  const uint32_t sign = sum < 0 ? 0x8000u : 0u;
  const uint64_t magnitude = sum < 0 ? -static_cast<uint64_t>(sum) : static_cast<uint64_t>(sum);
  const int top = highest_bit(magnitude);
  const int exponent = top + unit;
  if (exponent >= 16) return sign | 0x7C00u;
  const int drop = std::max(top - 10, -24 - unit);
  uint64_t kept = 0;
  if (drop <= 0) {
    kept = magnitude << -drop;
  } else if (drop < 63) {
    const uint64_t rest = magnitude & ((uint64_t{1} << drop) - 1), half = uint64_t{1} << (drop - 1);
    kept = magnitude >> drop;
    kept += rest > half || (rest == half && (kept & 1));
  }
  if (kept == 0) return SIGNED_UNDERFLOW ? sign : 0u;
  if (exponent < -14) return sign | static_cast<uint32_t>(kept);
  // A carry out of the significand raises the exponent, up to infinity.
  return sign | std::min<uint32_t>(
                    0x7C00u, (static_cast<uint32_t>(exponent + 14) << 10) + static_cast<uint32_t>(kept));
}

uint32_t dot_integer(const Arithmetic& arithmetic, const DotOperand& a, const DotOperand& b, uint32_t c) {
  int64_t sum = static_cast<int32_t>(c);
  for (int k = 0; k < arithmetic.k; ++k) {
    const int64_t product = int64_t{a.number[k].significand} * b.number[k].significand;
    sum += a.number[k].negative != b.number[k].negative ? -product : product;
  }
  if (arithmetic.saturate) sum = std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX);
  return static_cast<uint32_t>(sum);
}

// A float that takes part in sums and products as infinities, NaNs, zeros and signs do (numerics.md 4):
// finite numbers are small, so nothing overflows on the way.
float mark(const Number& number) {
  const float value = number.kind == Number::nan        ? NAN
                      : number.kind == Number::infinity ? INFINITY
                      : number.significand == 0         ? 0.0f
                                                        : 1.0f;
  return number.negative ? -value : value;
}

float special_sum(const Arithmetic& arithmetic, const DotOperand& a, const DotOperand& b, const Number& c) {
  float sum = mark(c);
  for (int k = 0; k < arithmetic.k; ++k) sum += mark(a.number[k]) * mark(b.number[k]);
  for (int block = 0; block < arithmetic.scales(); ++block) {
    if (a.scale[block].kind == Number::nan || b.scale[block].kind == Number::nan) sum = NAN;
  }
  return sum;
}

// The kinds with one fused sum (numerics.md 1). Scales only move the products' exponents.
uint32_t dot_fused(const Arithmetic& arithmetic, const DotOperand& a, const DotOperand& b, const Number& c) {
  const bool half = arithmetic.d == Accumulator::f16, scaled = arithmetic.scale != ScaleFormat::none;
  const int scale = scaled ? a.scale[0].exponent + b.scale[0].exponent : 0;
  int top = half ? kFloorF16 : kFloorF32;
  if (c.significand != 0) top = std::max(top, c.exponent);
  int64_t products[kMaxK];
  int exponents[kMaxK];
  for (int k = 0; k < arithmetic.k; ++k) {
    const Number &x = a.number[k], &y = b.number[k];
    products[k] = int64_t{x.significand} * y.significand;
    exponents[k] = x.exponent + y.exponent + scale;
    if (products[k] != 0) top = std::max(top, exponents[k]);
  }
  const int fraction = info(arithmetic.a).fraction_bits + info(arithmetic.b).fraction_bits;
  int64_t sum = shifted(c.significand, kFractionBits - (half ? 10 : 23) + c.exponent - top);
  if (c.negative) sum = -sum;
  for (int k = 0; k < arithmetic.k; ++k) {
    if (products[k] == 0) continue;
    const int64_t term = shifted(products[k], kFractionBits - fraction + exponents[k] - top);
    sum += a.number[k].negative != b.number[k].negative ? -term : term;
  }
  return half ? to_f16(sum, top - kFractionBits) : to_f32(sum, top - kFractionBits);
}

// FP4 block-scaled kinds (numerics.md 2): exact groups of 16, then one sum of the scaled groups and C.
uint32_t dot_grouped(const Arithmetic& arithmetic, const DotOperand& a, const DotOperand& b,
                     const Number& c) {
  constexpr int kGroups = kMaxK / kGroup;
  int64_t value[kGroups] = {};
  int exponent[kGroups] = {};
  bool live[kGroups] = {};
  int top = kGroupedFloor;
  for (int g = 0; g < arithmetic.k / kGroup; ++g) {
    const int block = g * kGroup / arithmetic.scale_block;
    const Number &x = a.scale[block], &y = b.scale[block];
    for (int k = g * kGroup; k < (g + 1) * kGroup; ++k) {
      const Number &p = a.number[k], &q = b.number[k];
      const int64_t product = (int64_t{p.significand} * q.significand) << (p.exponent + q.exponent);
      live[g] |= product != 0;
      value[g] += p.negative != q.negative ? -product : product;
    }
    value[g] *= int64_t{x.significand} * y.significand;
    live[g] = live[g] && x.significand != 0 && y.significand != 0;
    exponent[g] = x.exponent + y.exponent;
    if (live[g]) top = std::max(top, exponent[g]);
  }
  if (c.significand != 0) top = std::max(top, c.exponent);
  const int scale_fraction = arithmetic.scale == ScaleFormat::ue4m3 ? 6 : 0;
  const int fraction = info(arithmetic.a).fraction_bits + info(arithmetic.b).fraction_bits + scale_fraction;
  int64_t sum = shifted(c.significand, kGroupedFractionBits - 23 + c.exponent - top);
  if (c.negative) sum = -sum;
  for (int g = 0; g < arithmetic.k / kGroup; ++g) {
    if (!live[g]) continue;
    const int64_t magnitude = value[g] < 0 ? -value[g] : value[g];
    const int64_t term = shifted(magnitude, kGroupedFractionBits - fraction + exponent[g] - top);
    sum += value[g] < 0 ? -term : term;
  }
  return to_f32(sum, top - kGroupedFractionBits);
}

}  // namespace

uint32_t special_bits(Accumulator d, float value) {
  const bool half = d == Accumulator::f16;
  if (std::isnan(value)) return half ? kNanF16 : kNanF32;
  if (half) return value < 0 ? 0xFC00u : 0x7C00u;
  return value < 0 ? 0xFF800000u : 0x7F800000u;
}

DotOperand decode_operand(Format format, const Arithmetic& arithmetic, bool negate, const uint32_t* codes,
                          const uint8_t* scales) {
  DotOperand operand;
  for (int k = 0; k < arithmetic.k; ++k) {
    if (arithmetic.integer()) {
      const int32_t value = decode_integer(format, codes[k]);
      operand.number[k].negative = value < 0;
      operand.number[k].significand = static_cast<uint32_t>(value < 0 ? -value : value);
    } else {
      operand.number[k] = decode(format, codes[k]);
      operand.number[k].negative ^= negate;
    }
  }
  for (int block = 0; block < arithmetic.scales(); ++block) {
    operand.scale[block] = decode_scale(arithmetic.scale, scales[block]);
  }
  return operand;
}

uint32_t finite_dot(const Arithmetic& arithmetic, const DotOperand& a, const DotOperand& b, uint32_t c) {
  if (arithmetic.integer()) return dot_integer(arithmetic, a, b, c);
  const Number accumulator = arithmetic.d == Accumulator::f16 ? decode_f16(c) : decode_f32(c);
  return arithmetic.grouped ? dot_grouped(arithmetic, a, b, accumulator)
                            : dot_fused(arithmetic, a, b, accumulator);
}

uint32_t dot(const Arithmetic& arithmetic, const DotOperand& a, const DotOperand& b, uint32_t c) {
  if (!arithmetic.integer()) {
    const Number accumulator = arithmetic.d == Accumulator::f16 ? decode_f16(c) : decode_f32(c);
    const float special = special_sum(arithmetic, a, b, accumulator);
    if (!std::isfinite(special)) return special_bits(arithmetic.d, special);
  }
  return finite_dot(arithmetic, a, b, c);
}

uint32_t dot(const Arithmetic& arithmetic, const uint32_t* a, const uint32_t* b, uint32_t c,
             const uint8_t* sfa, const uint8_t* sfb) {
  return dot(arithmetic, decode_operand(arithmetic.a, arithmetic, arithmetic.negate_a, a, sfa),
             decode_operand(arithmetic.b, arithmetic, arithmetic.negate_b, b, sfb), c);
}

}  // namespace tcgen05::model

#include "model/dot.h"

#include <algorithm>
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

// Collects infinities and NaNs of the terms (numerics.md 4).
struct Special {
  bool nan = false, positive = false, negative = false;
  void infinity(bool minus) { (minus ? negative : positive) = true; }
  bool any() const { return nan || positive || negative; }
  uint32_t bits(Accumulator d) const {
    const bool half = d == Accumulator::f16;
    if (nan || (positive && negative)) return half ? kNanF16 : kNanF32;
    const uint32_t infinity_bits = half ? 0x7C00u : 0x7F800000u;
    return infinity_bits | (negative ? (half ? 0x8000u : 0x80000000u) : 0u);
  }
};

uint32_t dot_integer(const Arithmetic& arithmetic, const uint32_t* a, const uint32_t* b, uint32_t c) {
  int64_t sum = static_cast<int32_t>(c);
  for (int k = 0; k < arithmetic.k; ++k) {
    sum += int64_t{decode_integer(arithmetic.a, a[k])} * decode_integer(arithmetic.b, b[k]);
  }
  if (arithmetic.saturate) sum = std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX);
  return static_cast<uint32_t>(sum);
}

struct Terms {
  Special special;
  Number a[kMaxK], b[kMaxK];
};

void decode_terms(const Arithmetic& arithmetic, const uint32_t* a, const uint32_t* b, Terms& terms) {
  for (int k = 0; k < arithmetic.k; ++k) {
    Number& x = terms.a[k] = decode(arithmetic.a, a[k]);
    Number& y = terms.b[k] = decode(arithmetic.b, b[k]);
    x.negative ^= arithmetic.negate_a;
    y.negative ^= arithmetic.negate_b;
    if (x.kind == Number::nan || y.kind == Number::nan) {
      terms.special.nan = true;
    } else if (x.kind == Number::infinity || y.kind == Number::infinity) {
      const bool zero = (x.kind == Number::finite && x.significand == 0) ||
                        (y.kind == Number::finite && y.significand == 0);
      if (zero) terms.special.nan = true;
      if (!zero) terms.special.infinity(x.negative != y.negative);
    }
  }
}

void add_special(const Number& c, Special& special) {
  if (c.kind == Number::nan) special.nan = true;
  if (c.kind == Number::infinity) special.infinity(c.negative);
}

// The kinds with one fused sum (numerics.md 1). Scales only move the products' exponents.
uint32_t dot_fused(const Arithmetic& arithmetic, const uint32_t* a, const uint32_t* b, uint32_t c_bits,
                   const uint8_t* sfa, const uint8_t* sfb) {
  Terms terms;
  decode_terms(arithmetic, a, b, terms);
  int scale = 0;
  if (arithmetic.scale != ScaleFormat::none) {
    const Number x = decode_scale(arithmetic.scale, sfa[0]), y = decode_scale(arithmetic.scale, sfb[0]);
    if (x.kind == Number::nan || y.kind == Number::nan) terms.special.nan = true;
    scale = x.exponent + y.exponent;
  }
  const bool half = arithmetic.d == Accumulator::f16;
  const Number c = half ? decode_f16(c_bits) : decode_f32(c_bits);
  add_special(c, terms.special);
  if (terms.special.any()) return terms.special.bits(arithmetic.d);

  int top = half ? kFloorF16 : kFloorF32;
  if (c.significand != 0) top = std::max(top, c.exponent);
  for (int k = 0; k < arithmetic.k; ++k) {
    if (terms.a[k].significand == 0 || terms.b[k].significand == 0) continue;
    top = std::max(top, terms.a[k].exponent + terms.b[k].exponent + scale);
  }
  const int fraction = info(arithmetic.a).fraction_bits + info(arithmetic.b).fraction_bits;
  int64_t sum = shifted(c.significand, kFractionBits - (half ? 10 : 23) + c.exponent - top);
  if (c.negative) sum = -sum;
  for (int k = 0; k < arithmetic.k; ++k) {
    const Number &x = terms.a[k], &y = terms.b[k];
    const int64_t product = int64_t{x.significand} * y.significand;
    if (product == 0) continue;
    const int64_t term = shifted(product, kFractionBits - fraction + x.exponent + y.exponent + scale - top);
    sum += x.negative != y.negative ? -term : term;
  }
  return half ? to_f16(sum, top - kFractionBits) : to_f32(sum, top - kFractionBits);
}

// FP4 block-scaled kinds (numerics.md 2): exact groups of 16, then one sum of the scaled groups and C.
uint32_t dot_grouped(const Arithmetic& arithmetic, const uint32_t* a, const uint32_t* b, uint32_t c_bits,
                     const uint8_t* sfa, const uint8_t* sfb) {
  constexpr int kGroups = kMaxK / kGroup;
  Terms terms;
  decode_terms(arithmetic, a, b, terms);
  const Number c = decode_f32(c_bits);
  add_special(c, terms.special);
  int64_t value[kGroups] = {};
  int exponent[kGroups] = {};
  bool live[kGroups] = {};
  int top = kGroupedFloor;
  for (int g = 0; g < arithmetic.k / kGroup; ++g) {
    const int block = g * kGroup / arithmetic.scale_block;
    const Number x = decode_scale(arithmetic.scale, sfa[block]);
    const Number y = decode_scale(arithmetic.scale, sfb[block]);
    if (x.kind == Number::nan || y.kind == Number::nan) terms.special.nan = true;
    for (int k = g * kGroup; k < (g + 1) * kGroup; ++k) {
      const Number &p = terms.a[k], &q = terms.b[k];
      const int64_t product = (int64_t{p.significand} * q.significand) << (p.exponent + q.exponent);
      live[g] |= product != 0;
      value[g] += p.negative != q.negative ? -product : product;
    }
    value[g] *= int64_t{x.significand} * y.significand;
    live[g] = live[g] && x.significand != 0 && y.significand != 0;
    exponent[g] = x.exponent + y.exponent;
    if (live[g]) top = std::max(top, exponent[g]);
  }
  if (terms.special.any()) return terms.special.bits(arithmetic.d);
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

uint32_t dot(const Arithmetic& arithmetic, const uint32_t* a, const uint32_t* b, uint32_t c,
             const uint8_t* sfa, const uint8_t* sfb) {
  if (arithmetic.integer()) return dot_integer(arithmetic, a, b, c);
  if (arithmetic.grouped) return dot_grouped(arithmetic, a, b, c, sfa, sfb);
  return dot_fused(arithmetic, a, b, c, sfa, sfb);
}

}  // namespace tcgen05::model

// 16-bit floating point as float. Conversions to float are exact.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace tcgen05::vsm {

inline float bits_to_float(uint32_t b) {
  float f;
  std::memcpy(&f, &b, 4);
  return f;
}

inline uint32_t float_to_bits(float f) {
  uint32_t b;
  std::memcpy(&b, &f, 4);
  return b;
}

inline float bf16_to_float(uint16_t b) { return bits_to_float(static_cast<uint32_t>(b) << 16); }

inline float f16_to_float(uint16_t h) {
  uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  uint32_t exponent = h >> 10 & 31, fraction = h & 0x3ff;
  if (exponent == 31) return bits_to_float(sign | 0x7f800000 | fraction << 13);
  if (exponent) return bits_to_float(sign | (exponent + 112) << 23 | fraction << 13);
  float f = static_cast<float>(fraction) * 0x1p-24f;
  return sign ? -f : f;
}

// f16 and bf16 as types of their own, so that templates can tell them from integers.
struct Half {
  uint16_t bits;
  explicit operator float() const { return f16_to_float(bits); }
};
struct BHalf {
  uint16_t bits;
  explicit operator float() const { return bf16_to_float(bits); }
};

// Rounds to nearest even into a format with `kExponent` and `kFraction` bits that has infinities; a
// double holds every sum and product of two halves, so one rounding is all that happens.
template <int kExponent, int kFraction>
uint16_t round_to_half(double d) {
  constexpr int kBias = (1 << (kExponent - 1)) - 1;
  constexpr uint16_t kInfinity = static_cast<uint16_t>(((1 << kExponent) - 1) << kFraction);
  uint16_t sign = std::signbit(d) ? 0x8000 : 0;
  if (std::isnan(d)) return 0x7fff;
  double a = std::fabs(d);
  if (std::isinf(a)) return sign | kInfinity;
  int e = a == 0 ? 1 - kBias : std::max(std::ilogb(a), 1 - kBias);
  double q = std::nearbyint(std::ldexp(a, kFraction - e));  // nearest even: the default mode
  uint32_t code = static_cast<uint32_t>(q) + (static_cast<uint32_t>(e + kBias - 1) << kFraction);
  if (code >= kInfinity) return sign | kInfinity;
  return static_cast<uint16_t>(sign | code);
}

inline uint16_t to_f16(double d) { return round_to_half<5, 10>(d); }
inline uint16_t to_bf16(double d) { return round_to_half<8, 7>(d); }

}  // namespace tcgen05::vsm

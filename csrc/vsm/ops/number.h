// Binary floating-point formats and correct rounding into them: what the float, convert and matrix families
// share. A double holds every value of every format here, so values travel as double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "model/formats.h"

namespace tcgen05::vsm {

// .rn .rz .rm .rp, and .rna (nearest, ties away from zero).
enum class Rounding : uint8_t { nearest, zero, down, up, away };

template <int kExponentBits, int kFractionBits, model::Specials kSpecial = model::Specials::ieee>
struct FloatFormat {
  static constexpr int exponent = kExponentBits, fraction = kFractionBits, bits = 1 + exponent + fraction;
  static constexpr int bias = (1 << (exponent - 1)) - 1,
                       least = 1 - bias;  // `least`: exponent of the subnormals
  static constexpr model::Specials specials = kSpecial;
  static constexpr uint64_t sign = uint64_t{1} << (bits - 1);
  static constexpr uint64_t top = ((uint64_t{1} << exponent) - 1) << fraction;  // the largest exponent field
  static constexpr uint64_t largest = specials == model::Specials::ieee       ? top - 1
                                      : specials == model::Specials::nan_only ? sign - 2
                                                                              : sign - 1;
  // The canonical NaN has all bits but the sign; formats without NaN give their largest number (cvt
  // .satfinite).
  static constexpr uint64_t nan = sign - 1;
  static constexpr uint64_t infinity = specials == model::Specials::ieee ? top : nan;
};

using F64 = FloatFormat<11, 52>;
using F32 = FloatFormat<8, 23>;
using F16 = FloatFormat<5, 10>;
using BF16 = FloatFormat<8, 7>;
using TF32 = FloatFormat<8, 10>;  // without the 13 low bits of its 32-bit word
using E5M2 = FloatFormat<5, 2>;
using E4M3 = FloatFormat<4, 3, model::Specials::nan_only>;
using E3M2 = FloatFormat<3, 2, model::Specials::none>;
using E2M3 = FloatFormat<2, 3, model::Specials::none>;
using E2M1 = FloatFormat<2, 1, model::Specials::none>;

template <class To, class From>
inline To bit_copy(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

template <class F>
inline double decode_number(uint64_t code) {
  if constexpr (F::bits == 64) {
    return bit_copy<double>(code);
  } else if constexpr (F::bits == 32) {
    return bit_copy<float>(static_cast<uint32_t>(code));
  } else {
    uint64_t sign = code & F::sign ? uint64_t{1} << 63 : 0, rest = code & (F::sign - 1);
    uint64_t field = rest >> F::fraction, fraction = rest & ((uint64_t{1} << F::fraction) - 1);
    bool top = field == (F::top >> F::fraction);
    if (F::specials == model::Specials::ieee && top)
      return bit_copy<double>(sign | uint64_t{0x7ff} << 52 | fraction << (52 - F::fraction));
    if (F::specials == model::Specials::nan_only && rest == F::nan)
      return bit_copy<double>(sign | uint64_t{0x7ff8} << 48);
    if (field == 0) {
      double v = static_cast<double>(fraction) *
                 bit_copy<double>(static_cast<uint64_t>(1023 + F::least - F::fraction) << 52);
      return sign ? -v : v;
    }
    return bit_copy<double>(sign | (field + 1023 - F::bias) << 52 | fraction << (52 - F::fraction));
  }
}

// What a value beyond the largest number becomes.
template <class F>
inline uint64_t overflow(bool negative, Rounding mode, bool finite) {
  bool cut =
      mode == Rounding::zero || (mode == Rounding::down && !negative) || (mode == Rounding::up && negative);
  if (F::specials == model::Specials::none) return F::largest;
  return finite || cut ? F::largest : F::infinity;
}

// magnitude * 2^exponent, rounded once. magnitude < 2^53, or the exponent is 0.
template <class F>
inline uint64_t round_number(bool negative, uint64_t magnitude, int exponent, Rounding mode, bool finite) {
  const uint64_t sign = negative ? F::sign : 0;
  if (magnitude == 0) return sign;
  const int at = std::max(63 - __builtin_clzll(magnitude) + exponent, F::least);
  const int shift = std::min(at - F::fraction - exponent, 63);  // bits to drop
  uint64_t kept = magnitude;
  if (shift <= 0) {
    kept <<= -shift;
  } else {
    kept >>= shift;
    const uint64_t rest = magnitude & ((uint64_t{1} << shift) - 1), half = uint64_t{1} << (shift - 1);
    bool more = false;
    switch (mode) {
      case Rounding::nearest:
        more = rest > half || (rest == half && (kept & 1));
        break;
      case Rounding::zero:
        break;
      case Rounding::down:
        more = negative && rest;
        break;
      case Rounding::up:
        more = !negative && rest;
        break;
      case Rounding::away:
        more = rest >= half;
        break;
    }
    kept += more;
  }
  // The hidden bit and a carry out of the fraction add to the exponent field.
  const uint64_t code = (static_cast<uint64_t>(at - F::least) << F::fraction) + kept;
  return sign | (code > F::largest ? overflow<F>(negative, mode, finite) : code);
}

// `finite`: numbers too large and infinities become the largest number (cvt .satfinite).
template <class F>
inline uint64_t encode_number(double v, Rounding mode, bool finite = false) {
  const uint64_t b = bit_copy<uint64_t>(v);
  const bool negative = b >> 63;
  const int field = static_cast<int>(b >> 52 & 0x7ff);
  const uint64_t fraction = b & ((uint64_t{1} << 52) - 1);
  if (field == 0x7ff) {
    if (fraction) return F::nan;
    return (negative ? F::sign : 0) |
           (finite || F::specials == model::Specials::none ? F::largest : F::infinity);
  }
  return field ? round_number<F>(negative, fraction | uint64_t{1} << 52, field - 1075, mode, finite)
               : round_number<F>(negative, fraction, -1074, mode, finite);
}

// ---- one rounding of an exact result that a double does not hold ----
//
// A result of single precision or less is first computed as a double "rounded to odd": inexact values get an
// odd last bit, so that they lie strictly between the numbers and midpoints of any format of at most 51 bits,
// and rounding again, in any mode, is right (Boldo and Melquiond).

inline double to_odd(double rounded, double error) {
  const int64_t b = bit_copy<int64_t>(rounded);
  const bool inexact = error > 0 || error < 0;
  const bool outward = (error > 0) == (rounded > 0);
  return bit_copy<double>(b + (inexact && !(b & 1) ? (outward ? 1 : -1) : 0));
}

inline double sum_to_odd(double a, double b) {
  const double s = a + b, t = s - a;
  return to_odd(s, (a - (s - t)) + (b - t));
}

inline double product_sum_to_odd(double a, double b, double c) { return sum_to_odd(a * b, c); }

// Of floats: the error's sign is that of the remainder, which fma gives exactly.
inline double quotient_to_odd(double a, double b) {
  const double q = a / b, rest = std::fma(-q, b, a);
  return to_odd(q, b < 0 ? -rest : rest);
}

inline double root_to_odd(double a) {
  const double s = std::sqrt(a);
  return to_odd(s, std::fma(-s, s, a));
}

// A double to single precision.
inline float round_float(double v, Rounding mode) {
  const float f = static_cast<float>(v);
  const double back = f;
  if (mode == Rounding::nearest || back == v || !(back == back)) return f;
  const bool above = back > v;  // so f is too high
  const bool wrong = mode == Rounding::zero ? above == (v > 0) : mode == Rounding::down ? above : !above;
  if (!wrong) return f;
  const uint32_t b = bit_copy<uint32_t>(f);
  return bit_copy<float>(b + (above == !(b >> 31) ? -1u : 1u));
}

// ---- halves to nearest even, by integer steps that compilers vectorise ----

// The bits of a double as a float rounded to odd: rounding those to a half is one rounding of the double.
inline uint32_t float_to_odd(double v) {
  const float f = static_cast<float>(v);
  const double error = v - f;
  const uint32_t b = bit_copy<uint32_t>(f);
  const bool inexact = error > 0 || error < 0, outward = (error > 0) == !(b >> 31);
  return b + (inexact && !(b & 1) ? (outward ? 1u : ~0u) : 0u);
}

inline uint32_t f16_nearest(uint32_t x) {
  const uint32_t a = x & 0x7fffffff, sign = x >> 16 & 0x8000;
  const uint32_t normal = (a + 0xfff + (a >> 13 & 1) - (112u << 23)) >> 13;
  const uint32_t small = bit_copy<uint32_t>(bit_copy<float>(a < 0x38800000 ? a : 0) + 0.5f) - 0x3f000000;
  const uint32_t r = a < 0x38800000 ? small : a >= 0x477ff000 ? 0x7c00 : normal;
  return a > 0x7f800000 ? 0x7fff : r | sign;
}

inline uint32_t bf16_nearest(uint32_t x) {
  return (x & 0x7fffffff) > 0x7f800000 ? 0x7fff : (x + 0x7fff + (x >> 16 & 1)) >> 16;
}

// A half's value: a shift, or one product that makes f16's subnormals normal.
template <class F>
inline float half_value(uint32_t code) {
  if constexpr (F::exponent == 8) {
    return bit_copy<float>(code << 16);
  } else {
    const uint32_t rest = (code & 0x7fff) << 13;
    const uint32_t r = bit_copy<uint32_t>(bit_copy<float>(rest) * 0x1p112f) | (code & 0x8000) << 16;
    return bit_copy<float>(r | (rest >= 0x7c00u << 13 ? 0x7f800000 : 0));
  }
}

template <class F>
inline uint32_t half_nearest(uint32_t single) {
  return F::exponent == 8 ? bf16_nearest(single) : f16_nearest(single);
}

// ---- one rounding to double precision ----

#if defined(__SIZEOF_FLOAT128__)
using Quad = __float128;
#else
using Quad = long double;  // 113 bits where it is IEEE quad
#endif

inline int sign_of(Quad v) { return v > 0 ? 1 : v < 0 ? -1 : 0; }

// `nearest` is the result rounded to nearest, `error` the sign of the exact result minus it.
inline double direct(double nearest, int error, Rounding mode) {
  if (error == 0 || nearest != nearest || mode == Rounding::nearest) return nearest;
  const bool up = mode == Rounding::up ||
                  (mode == Rounding::zero && (nearest < 0 || (nearest == 0 && std::signbit(nearest))));
  if (up != (error > 0)) return nearest;
  const uint64_t b = bit_copy<uint64_t>(nearest);
  const bool grow = up != static_cast<bool>(b >> 63);
  return bit_copy<double>(grow ? b + 1 : b - 1);
}

// The sign of a * b + c - d, exactly. d is finite and near.
inline int error_sign(double a, double b, double c, double d) {
  const Quad p = static_cast<Quad>(a) * b, x = c, s = p + x, t = s - p;
  const Quad error = (p - (s - t)) + (x - t);
  const int first = sign_of(s - static_cast<Quad>(d));
  return first ? first : sign_of(error);
}

}  // namespace tcgen05::vsm

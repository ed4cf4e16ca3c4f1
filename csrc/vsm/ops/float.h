// What the files of the float family share.
#pragma once

#include "vsm/ops/common.h"
#include "vsm/ops/number.h"

namespace tcgen05::vsm {

// Instr::u of floating-point arithmetic.
enum FloatField { kModeField, kFloatFlags };
enum FloatFlag : uint8_t {
  kFtz = 1,
  kSat = 2,  // to [0, 1]; NaN gives 0
  kReluResult = 4,
  kNegateLast = 8,  // sub: the last source is subtracted
  kApprox = 16,
  kNan = 32,  // .NaN of min and max
  kXorSign = 64,
  kAbs = 128
};

// How `count` elements of format F lie in a register's slot.
template <class F, int count>
using packed_slot_t = std::conditional_t<F::bits * count == 64, uint64_t, uint32_t>;

template <class F>
inline uint64_t flush_code(uint64_t code) {
  return code & F::top ? code : code & F::sign;
}

// Element k of a slot as a double; `ftz` makes subnormals zeros of their sign.
template <class F>
inline double load_element(uint64_t slot, int k, bool ftz) {
  uint64_t code = slot >> (k * F::bits % 64);
  return decode_number<F>(ftz ? flush_code<F>(code) : code);
}

// The element that an operation stores: `v` is exact, or rounded to odd (number.h).
template <class F>
inline uint64_t store_element(double v, Rounding mode, uint8_t flags) {
  if (flags & kSat) v = v > 0 ? std::min(v, 1.0) : 0.0;
  if ((flags & kReluResult) && v <= 0) v = 0;
  uint64_t code;
  if constexpr (F::bits == 64) {
    code = bit_copy<uint64_t>(v);
  } else if constexpr (F::bits == 32) {
    code = v == v ? bit_copy<uint32_t>(round_float(v, mode)) : F::nan;
  } else {
    code = encode_number<F>(v, mode);
  }
  return flags & kFtz ? flush_code<F>(code) : code;
}

// The element type and count of a register type; calls f with Tag-like arguments. Null for other types.
template <class F_, int count_>
struct Elements {
  using F = F_;
  static constexpr int count = count_;
};

template <class Fn>
Handler with_elements(Type t, Fn&& f) {
  switch (t) {
    case Type::f32:
      return f(Elements<F32, 1>{});
    case Type::f64:
      return f(Elements<F64, 1>{});
    case Type::f16:
      return f(Elements<F16, 1>{});
    case Type::bf16:
      return f(Elements<BF16, 1>{});
    case Type::f16x2:
      return f(Elements<F16, 2>{});
    case Type::bf16x2:
      return f(Elements<BF16, 2>{});
    case Type::f32x2:
      return f(Elements<F32, 2>{});
    default:
      return nullptr;
  }
}

// Destination and sources of type t; halves may be given as integer constants, their bits.
inline void float_operands(Decoder& d, Type t, size_t sources) {
  simple_operands(d, t == Type::f16 || t == Type::bf16 ? Type::b16 : t, sources);
}

inline bool is_half(Type t) {
  return t == Type::f16 || t == Type::bf16 || t == Type::f16x2 || t == Type::bf16x2;
}
inline bool is_f16(Type t) { return t == Type::f16 || t == Type::f16x2; }

void decode_sign(Decoder& d, Type t);     // neg, abs
void decode_minimum(Decoder& d, Type t);  // min, max
void decode_copysign(Decoder& d);
void decode_approximate(Decoder& d);        // ex2, lg2, sin, cos, tanh, rsqrt
bool decode_approximate_rcp64(Decoder& d);  // rcp.approx.ftz.f64; false: another form

}  // namespace tcgen05::vsm

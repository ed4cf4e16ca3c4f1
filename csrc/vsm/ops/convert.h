// What the files of the convert family share.
#pragma once

#include "vsm/decode.h"
#include "vsm/ops/number.h"

namespace tcgen05::vsm {

// Instr::u of a conversion.
enum ConvertField { kRoundingField, kFlagsField, kIntegralField, kRegisterBitsField };
enum ConvertFlag : uint8_t { kFlush = 1, kSaturate = 2, kFinite = 4, kRelu = 8 };
// Rounding to an integral value: .rni .rzi .rmi .rpi
enum class Integral : uint8_t { none, nearest, zero, down, up };

// Modifiers of cvt, in any order; the types are left over.
struct ConvertModifiers {
  bool rounded = false, stochastic = false, scaled = false;
  Rounding rounding = Rounding::nearest;
  Integral integral = Integral::none;
  uint8_t flags = 0;
};

template <class T>
struct Tag {
  using type = T;
};

// Calls f with the format of a scalar floating-point type; null if t is none.
template <class Fn>
Handler with_format(Type t, Fn&& f) {
  switch (t) {
    case Type::f16:
      return f(Tag<F16>{});
    case Type::bf16:
      return f(Tag<BF16>{});
    case Type::f32:
      return f(Tag<F32>{});
    case Type::f64:
      return f(Tag<F64>{});
    default:
      return nullptr;
  }
}

template <class Fn>
Handler with_integer(Type t, Fn&& f) {
  switch (t) {
    case Type::u8:
      return f(Tag<uint8_t>{});
    case Type::s8:
      return f(Tag<int8_t>{});
    case Type::u16:
      return f(Tag<uint16_t>{});
    case Type::s16:
      return f(Tag<int16_t>{});
    case Type::u32:
      return f(Tag<uint32_t>{});
    case Type::s32:
      return f(Tag<int32_t>{});
    case Type::u64:
      return f(Tag<uint64_t>{});
    case Type::s64:
      return f(Tag<int64_t>{});
    default:
      return nullptr;
  }
}

// The result of a conversion as a code of F: .relu, .sat, rounding, .satfinite, .ftz of the result.
template <class F>
uint64_t finish_float(double v, Rounding mode, uint8_t flags) {
  if ((flags & kRelu) && std::signbit(v) && v == v) v = 0;
  if (flags & kSaturate) v = v > 0 ? std::min(v, 1.0) : 0.0;
  uint64_t code = encode_number<F>(v, mode, flags & kFinite);
  if constexpr (F::bits == 32) {
    if ((flags & kFlush) && !(code & F::top)) code &= F::sign;
  }
  return code;
}

// Conversions with a packed or narrow type on either side (convert_narrow.cc). False: both types are scalar.
bool decode_packed_convert(Decoder& d, const ConvertModifiers& m, std::string_view to, std::string_view from);

}  // namespace tcgen05::vsm

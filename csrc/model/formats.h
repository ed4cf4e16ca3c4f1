// Number formats of tcgen05.mma operands (PTX ISA 9.7.16.10; OCP FP8 and MX), as a table, and their decoding.
#pragma once

#include <cstdint>
#include <string_view>

namespace tcgen05::model {

enum class Format : uint8_t { f16, bf16, tf32, e4m3, e5m2, e2m3, e3m2, e2m1, s8, u8 };
enum class Accumulator : uint8_t { f32, f16, s32 };
enum class ScaleFormat : uint8_t { none, ue8m0, ue4m3 };

// What the codes with the largest exponent field mean.
enum class Specials : uint8_t { none, nan_only, ieee };

struct FormatInfo {
  std::string_view name;  // as ml_dtypes has it, but for tf32
  int bits;               // significant bits of a code
  int storage_bits;       // bits of an element where it is not padded (tf32: a float32 word)
  int exponent_bits;      // 0: integer
  int fraction_bits;
  int bias;
  Specials specials;
};

inline constexpr FormatInfo kFormats[] = {
    {"float16", 16, 16, 5, 10, 15, Specials::ieee},   {"bfloat16", 16, 16, 8, 7, 127, Specials::ieee},
    {"tf32", 19, 32, 8, 10, 127, Specials::ieee},     {"float8_e4m3fn", 8, 8, 4, 3, 7, Specials::nan_only},
    {"float8_e5m2", 8, 8, 5, 2, 15, Specials::ieee},  {"float6_e2m3fn", 6, 6, 2, 3, 1, Specials::none},
    {"float6_e3m2fn", 6, 6, 3, 2, 3, Specials::none}, {"float4_e2m1fn", 4, 4, 2, 1, 1, Specials::none},
    {"int8", 8, 8, 0, 0, 0, Specials::none},          {"uint8", 8, 8, 0, 0, 0, Specials::none},
};

inline constexpr const FormatInfo& info(Format format) { return kFormats[static_cast<int>(format)]; }

// value = (-1)^negative * significand * 2^(exponent - fraction_bits). The significand is not
// renormalised: subnormals keep the smallest normal exponent (numerics.md 1).
struct Number {
  enum Class : uint8_t { finite, infinity, nan };
  Class kind = finite;
  bool negative = false;
  uint32_t significand = 0;
  int32_t exponent = 0;
};

// Decodes sign / exponent / fraction fields, the lowest bit of the fraction being bit 0.
inline Number decode_fields(uint32_t code, int exponent_bits, int fraction_bits, int bias,
                            Specials specials) {
  const uint32_t top = (1u << exponent_bits) - 1;
  const uint32_t fraction = code & ((1u << fraction_bits) - 1);
  const uint32_t exponent = (code >> fraction_bits) & top;
  Number number;
  number.negative = (code >> (exponent_bits + fraction_bits)) & 1;
  if (exponent == top && specials == Specials::ieee) {
    number.kind = fraction == 0 ? Number::infinity : Number::nan;
  } else if (exponent == top && specials == Specials::nan_only && fraction == (1u << fraction_bits) - 1) {
    number.kind = Number::nan;
  }
  number.significand = fraction + (exponent != 0 ? 1u << fraction_bits : 0u);
  number.exponent = static_cast<int32_t>(exponent != 0 ? exponent : 1u) - bias;
  return number;
}

// Decodes one code of a floating format. A tf32 code is the float32 word; its low 13 bits are ignored.
inline Number decode(Format format, uint32_t code) {
  const FormatInfo& f = info(format);
  if (format == Format::tf32) code >>= 13;
  return decode_fields(code, f.exponent_bits, f.fraction_bits, f.bias, f.specials);
}

inline Number decode_f32(uint32_t bits) { return decode_fields(bits, 8, 23, 127, Specials::ieee); }
inline Number decode_f16(uint32_t bits) { return decode_fields(bits & 0xFFFF, 5, 10, 15, Specials::ieee); }

// Scales. UE8M0: 2^(code - 127), 0xFF NaN. UE4M3: E4M3 whose bit 7 is ignored, 3 fraction bits.
inline Number decode_scale(ScaleFormat format, uint32_t code) {
  if (format == ScaleFormat::ue4m3) return decode_fields(code & 0x7F, 4, 3, 7, Specials::nan_only);
  Number number;
  number.kind = code == 0xFF ? Number::nan : Number::finite;
  number.significand = 1;
  number.exponent = static_cast<int32_t>(code) - 127;
  return number;
}

inline int32_t decode_integer(Format format, uint32_t code) {
  return format == Format::s8 ? static_cast<int8_t>(code) : static_cast<int32_t>(code & 0xFF);
}

}  // namespace tcgen05::model

#include "model/panel.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/dispatch.h"
#include "model/vectors.h"

namespace tcgen05::model {
namespace {

struct DecodeArgs {
  Format format;
  int k_count;
  bool negate, grouped;
  const uint32_t (*codes)[kBlock];
  Block* block;
};

TCGEN05_INLINE void decode_integers(const DecodeArgs& args) {
  const bool is_signed = args.format == Format::s8;
  for (int k = 0; k < args.k_count; ++k) {
    for (int lane = 0; lane < kBlock; lane += kVector) {
      LOAD(Ints, code, args.codes[k] + lane);
      code &= 0xFF;
      const Floats value = __builtin_convertvector(is_signed ? (code ^ 0x80) - 0x80 : code, Floats);
      std::memcpy(args.block->value[k] + lane, &value, sizeof value);
    }
  }
}

// What the codes of a floating format are made of.
struct Fields {
  int fraction_bits, sign_bit, dropped, top, hidden, payload, specials, bias;
  explicit Fields(const FormatInfo& f)
      : fraction_bits(f.fraction_bits),
        sign_bit(f.exponent_bits + f.fraction_bits),
        dropped(f.storage_bits == 32 ? 13 : 0),
        top((1 << f.exponent_bits) - 1),
        hidden(1 << f.fraction_bits),
        payload((1 << sign_bit) - 1),
        // The smallest code without its sign that is no finite number.
        specials(f.specials == Specials::ieee       ? top << f.fraction_bits
                 : f.specials == Specials::nan_only ? payload
                                                    : payload + 1),
        bias(f.bias) {}
};

// One vector of lanes of a floating format. First the largest exponents of each lane, then the values.
TCGEN05_INLINE void decode_floats(const DecodeArgs& args, const Fields& f, int lane) {
  Block& block = *args.block;
  Ints significands[kMaxK], exponents[kMaxK];
  Ints special = Ints{}, high = Ints{} - 1000, low = Ints{} + 1000;
  for (int k = 0; k < args.k_count; ++k) {
    LOAD(Ints, code, args.codes[k] + lane);
    code = (code >> f.dropped) & f.payload;
    const Ints field = code >> f.fraction_bits, odd = code >= f.specials;
    const Ints fraction = (code & (f.hidden - 1)) + (field != 0 ? Ints{} + f.hidden : Ints{});
    const Ints exponent = MAX(field, Ints{} + 1) - f.bias;
    const Ints counts = ~odd & (fraction != 0);
    special |= odd;
    significands[k] = ~odd & fraction;
    exponents[k] = exponent;
    high = counts ? MAX(high, exponent) : high;
    low = counts ? MIN(low, exponent) : low;
  }
  // FP4 groups are summed as they are.
  const Ints shift = high > -1000 ? (args.grouped ? Ints{} : high) : Ints{};
  const Ints wide = (high - low) > kKeptRange;
  const int headroom = args.grouped ? 0 : kHeadroom, flip = args.negate ? 1 << f.sign_bit : 0;
  for (int k = 0; k < args.k_count; ++k) {
    LOAD(Ints, code, args.codes[k] + lane);
    const Ints sign = (((code >> f.dropped) ^ flip) << (31 - f.sign_bit)) & INT32_MIN;
    const Ints live = (significands[k] != 0) & ((exponents[k] - shift) >= -kKeptRange);
    const Ints relative = live & (exponents[k] - shift);
    const Ints power_bits = (relative + (127 - f.fraction_bits - headroom)) << 23;
    LOAD(Floats, power, &power_bits);
    const Floats magnitude = __builtin_convertvector(live & significands[k], Floats) * power;
    LOAD(Ints, bits, &magnitude);
    bits |= sign;
    std::memcpy(block.value[k] + lane, &bits, sizeof bits);
    const LaneBytes bytes = __builtin_convertvector(live ? relative : Ints{} + kZeroExponent, LaneBytes);
    std::memcpy(block.exponent[k] + lane, &bytes, sizeof bytes);
  }
  const LaneBytes specials = __builtin_convertvector(special, LaneBytes);
  const LaneBytes wides = __builtin_convertvector(wide, LaneBytes);
  std::memcpy(block.special + lane, &specials, sizeof specials);
  std::memcpy(block.wide + lane, &wides, sizeof wides);
  std::memcpy(block.shift + lane, &shift, sizeof shift);
  if (!args.grouped) return;
  for (int group = 0; group < args.k_count / kGroup; ++group) {
    Ints bits = Ints{};
    for (int t = 0; t < kGroup; ++t) bits |= (significands[group * kGroup + t] != 0) & (1 << t);
    const LaneHalves halves = __builtin_convertvector(bits, LaneHalves);
    std::memcpy(block.nonzero[group] + lane, &halves, sizeof halves);
  }
}

// The values with infinities and NaNs in their places, and what was dropped as something that is not zero.
void mark(const DecodeArgs& args, const Fields& f) {
  Block& block = *args.block;
  for (int k = 0; k < args.k_count; ++k) {
    for (int lane = 0; lane < kBlock; ++lane) {
      const int code = static_cast<int>(args.codes[k][lane] >> f.dropped) & f.payload;
      float value = block.value[k][lane];
      if (code >= f.specials) {
        const bool infinite = code == f.top << f.fraction_bits;
        value = std::copysign(infinite ? INFINITY : NAN, value);
      } else if (value == 0 && code != 0) {
        value = std::copysign(0x1p-60f, value);
      }
      block.marks[k][lane] = value;
    }
  }
}

TCGEN05_INLINE void decode_any(const DecodeArgs& args) {
  if (info(args.format).exponent_bits == 0) return decode_integers(args);
  const Fields fields(info(args.format));
  for (int lane = 0; lane < kBlock; lane += kVector) decode_floats(args, fields, lane);
}

TCGEN05_VARIANTS(decode_variant, DecodeArgs, decode_any)

}  // namespace

void decode_block(Format format, int k_count, bool negate, bool grouped, const uint32_t (*codes)[kBlock],
                  Block& block) {
  const DecodeArgs args{format, k_count, negate, grouped, codes, &block};
  decode_variant(args);
  block.marked = false;
  if (info(format).exponent_bits == 0) return;
  for (int lane = 0; lane < kBlock; ++lane) block.marked |= block.special[lane] != 0 || block.wide[lane] != 0;
  if (block.marked) mark(args, Fields(info(format)));
}

void decode_scales(ScaleFormat format, int groups, int scales, int lanes, const uint8_t (*bytes)[4],
                   ScaleBlock& block) {
  for (int group = 0; group < groups; ++group) {
    for (int lane = 0; lane < lanes; ++lane) {
      const Number scale = decode_scale(format, bytes[lane][group * scales / groups]);
      block.exponent[group][lane] = scale.exponent;
      block.significand[group][lane] = static_cast<float>(scale.significand);
      if (scale.kind == Number::nan) block.nan[lane] = 1;
    }
  }
}

void unpack_codes(Container container, const uint8_t* row, uint32_t* codes) {
  switch (container) {
    case Container::plain8:
      for (int k = 0; k < 32; ++k) codes[k] = row[k];
      return;
    case Container::plain16:
      for (int k = 0; k < 16; ++k) codes[k] = row[2 * k] | row[2 * k + 1] << 8;
      return;
    case Container::plain32:
      for (int k = 0; k < 8; ++k) {
        codes[k] = row[4 * k] | row[4 * k + 1] << 8 | row[4 * k + 2] << 16 | uint32_t{row[4 * k + 3]} << 24;
      }
      return;
    case Container::nibbles:
      for (int k = 0; k < 64; ++k) codes[k] = (row[k / 2] >> (4 * (k % 2))) & 15;
      return;
    case Container::fp6_padded:
      for (int k = 0; k < 32; ++k) {
        const uint8_t* block = row + 16 * (k / 16);
        const int bit = 6 * (k % 16);
        codes[k] = ((block[bit / 8] | block[bit / 8 + 1] << 8) >> (bit % 8)) & 63;
      }
      return;
    case Container::fp4_padded:
      for (int k = 0; k < 32; ++k) codes[k] = (row[16 * (k / 16) + k % 16 / 2] >> (4 * (k % 2))) & 15;
      return;
    case Container::fp6_byte:
      for (int k = 0; k < 32; ++k) codes[k] = row[k] & 63;
      return;
    case Container::fp4_byte:
      for (int k = 0; k < 32; ++k) codes[k] = (row[k] >> 2) & 15;
      return;
  }
}

void Panel::build(const Operand& operand, const Arithmetic& arithmetic, bool negate, int rows,
                  int bank_rows) {
  container_ = operand.container;
  blocks_per_bank_ = (bank_rows + kBlock - 1) / kBlock;
  const int needed = rows / bank_rows * blocks_per_bank_;
  if (needed > capacity_) {
    blocks_.reset(new Block[static_cast<size_t>(needed)]);
    capacity_ = needed;
  }
  uint32_t codes[kMaxK][kBlock];
  for (int index = 0; index < needed; ++index) {
    const int inside = index % blocks_per_bank_ * kBlock;
    const int first = index / blocks_per_bank_ * bank_rows + inside,
              lanes = std::min(kBlock, bank_rows - inside);
    uint32_t row[kMaxK];
    if (lanes < kBlock) std::memset(codes, 0, sizeof codes);
    for (int lane = 0; lane < lanes; ++lane) {
      unpack_codes(container_, raw_[first + lane], row);
      for (int k = 0; k < arithmetic.k; ++k) codes[k][lane] = row[k];
    }
    decode_block(operand.format, arithmetic.k, negate, arithmetic.grouped, codes, blocks_[index]);
  }
}

}  // namespace tcgen05::model

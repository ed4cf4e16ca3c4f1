#include "model/panel.h"

#include <algorithm>
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

// 8 lanes of a floating format. First the largest and smallest exponents of each lane, then the values.
TCGEN05_INLINE void decode_floats(const DecodeArgs& args, int lane) {
  const FormatInfo& f = info(args.format);
  Block& block = *args.block;
  const int fraction_bits = f.fraction_bits, sign_bit = f.exponent_bits + f.fraction_bits;
  const int dropped = f.storage_bits == 32 ? 13 : 0;
  const int top = (1 << f.exponent_bits) - 1, hidden = 1 << fraction_bits, payload = (1 << sign_bit) - 1;
  // The smallest code without its sign that is no finite number.
  const int specials = f.specials == Specials::ieee       ? top << fraction_bits
                       : f.specials == Specials::nan_only ? payload
                                                          : payload + 1;
  Ints significands[kMaxK], exponents[kMaxK];
  Ints slow = Ints{}, high = Ints{} - 1000, low = Ints{} + 1000;
  for (int k = 0; k < args.k_count; ++k) {
    LOAD(Ints, code, args.codes[k] + lane);
    code = (code >> dropped) & payload;
    const Ints field = code >> fraction_bits, special = code >= specials;
    const Ints fraction = (code & (hidden - 1)) + (field != 0 ? Ints{} + hidden : Ints{});
    const Ints exponent = MAX(field, Ints{} + 1) - f.bias;
    const Ints counts = ~special & (fraction != 0);
    slow |= special;
    significands[k] = ~special & fraction;
    exponents[k] = exponent;
    high = counts ? MAX(high, exponent) : high;
    low = counts ? MIN(low, exponent) : low;
  }
  // FP4 groups are summed as they are.
  const Ints shift = high > -1000 ? (args.grouped ? Ints{} : high) : Ints{};
  const Ints too_wide = (high - low) > kWidestRange;
  slow |= too_wide;
  const int headroom = args.grouped ? 0 : kHeadroom;
  const int flip = args.negate ? 1 << sign_bit : 0;
  for (int k = 0; k < args.k_count; ++k) {
    LOAD(Ints, code, args.codes[k] + lane);
    const Ints sign = (((code >> dropped) ^ flip) << (31 - sign_bit)) & INT32_MIN;
    // A slow lane is computed again by dot(): zeros keep its arithmetic here within range.
    const Ints significand = ~too_wide & significands[k];
    const Ints live = significand != 0, relative = live & (exponents[k] - shift);
    const Ints power_bits = (relative + (127 - fraction_bits - headroom)) << 23;
    LOAD(Floats, power, &power_bits);
    const Floats magnitude = __builtin_convertvector(significand, Floats) * power;
    LOAD(Ints, bits, &magnitude);
    bits |= sign;
    std::memcpy(block.value[k] + lane, &bits, sizeof bits);
    const EightBytes bytes = __builtin_convertvector(live ? relative : Ints{} + kZeroExponent, EightBytes);
    std::memcpy(block.exponent[k] + lane, &bytes, sizeof bytes);
  }
  const EightBytes marks = __builtin_convertvector(slow, EightBytes);
  std::memcpy(block.slow + lane, &marks, sizeof marks);
  std::memcpy(block.shift + lane, &shift, sizeof shift);
  if (!args.grouped) return;
  for (int group = 0; group < args.k_count / kGroup; ++group) {
    Ints bits = Ints{};
    for (int t = 0; t < kGroup; ++t) bits |= (significands[group * kGroup + t] != 0) & (1 << t);
    const EightHalves halves = __builtin_convertvector(bits, EightHalves);
    std::memcpy(block.nonzero[group] + lane, &halves, sizeof halves);
  }
}

TCGEN05_INLINE void decode_any(const DecodeArgs& args) {
  if (info(args.format).exponent_bits == 0) {
    decode_integers(args);
    std::fill_n(args.block->slow, kBlock, uint8_t{0});
  } else {
    for (int lane = 0; lane < kBlock; lane += kVector) decode_floats(args, lane);
  }
}

TCGEN05_VARIANTS(decode_variant, DecodeArgs, decode_any)

}  // namespace

void decode_block(Format format, int k_count, bool negate, bool grouped, const uint32_t (*codes)[kBlock],
                  Block& block) {
  decode_variant({format, k_count, negate, grouped, codes, &block});
}

void decode_scales(ScaleFormat format, int groups, int scales, int lanes, const uint8_t (*bytes)[4],
                   ScaleBlock& block) {
  for (int group = 0; group < groups; ++group) {
    for (int lane = 0; lane < lanes; ++lane) {
      const Number scale = decode_scale(format, bytes[lane][group * scales / groups]);
      block.exponent[group][lane] = scale.exponent;
      block.significand[group][lane] = static_cast<float>(scale.significand);
      if (scale.kind == Number::nan) block.slow[lane] = 1;
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

#include "model/panel.h"

#include <algorithm>
#include <cstring>

#include "model/dispatch.h"

namespace tcgen05::model {
namespace {

struct DecodeArgs {
  Format format;
  int k_count;
  bool negate, grouped;
  const uint32_t (*codes)[kBlock];
  Block* block;
};

TCGEN05_INLINE float power_of_two(int32_t exponent) {
  const uint32_t bits = static_cast<uint32_t>(exponent + 127) << 23;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

TCGEN05_INLINE void decode_integers(const DecodeArgs& args) {
  const bool is_signed = args.format == Format::s8;
  for (int k = 0; k < args.k_count; ++k) {
    for (int lane = 0; lane < kBlock; ++lane) {
      const int32_t code = static_cast<int32_t>(args.codes[k][lane] & 0xFF);
      args.block->value[k][lane] = static_cast<float>(is_signed ? (code ^ 0x80) - 0x80 : code);
    }
  }
}

// Loops over lanes, so that the compiler turns them into vectors.
TCGEN05_INLINE void decode_floats(const DecodeArgs& args) {
  const FormatInfo& f = info(args.format);
  Block& block = *args.block;
  const int fraction_bits = f.fraction_bits, bias = f.bias, sign_bit = f.exponent_bits + f.fraction_bits;
  const int dropped = f.storage_bits == 32 ? 13 : 0;
  const int32_t top = (1 << f.exponent_bits) - 1, fraction_mask = (1 << fraction_bits) - 1;
  const uint32_t negate = args.negate ? 1 : 0;
  // The smallest code without its sign that is no finite number.
  const int32_t specials = f.specials == Specials::ieee       ? top << fraction_bits
                           : f.specials == Specials::nan_only ? (1 << sign_bit) - 1
                                                              : 1 << sign_bit;
  int32_t slow[kBlock] = {}, high[kBlock], low[kBlock];
  int32_t significand[kMaxK][kBlock], exponent[kMaxK][kBlock];
  for (int lane = 0; lane < kBlock; ++lane) {
    high[lane] = -1000;
    low[lane] = 1000;
  }
  for (int k = 0; k < args.k_count; ++k) {
    for (int lane = 0; lane < kBlock; ++lane) {
      const int32_t code = static_cast<int32_t>(args.codes[k][lane] >> dropped);
      const int32_t field = (code >> fraction_bits) & top;
      const int32_t special = (code & ((1 << sign_bit) - 1)) >= specials ? 1 : 0;
      const int32_t fraction = (code & fraction_mask) | (field != 0 ? 1 << fraction_bits : 0);
      const int32_t own = (field != 0 ? field : 1) - bias;
      slow[lane] |= special;
      significand[k][lane] = special ? 0 : fraction;
      exponent[k][lane] = own;
      const bool counts = fraction != 0 && special == 0;
      high[lane] = counts && own > high[lane] ? own : high[lane];
      low[lane] = counts && own < low[lane] ? own : low[lane];
    }
  }
  for (int lane = 0; lane < kBlock; ++lane) {
    // FP4 groups are summed as they are.
    block.shift[lane] = !args.grouped && high[lane] > -1000 ? high[lane] : 0;
    const bool too_wide = high[lane] - low[lane] > kWidestRange;
    block.slow[lane] = slow[lane] != 0 || too_wide;
    low[lane] = too_wide ? 1 : 0;
  }
  for (int k = 0; k < args.k_count; ++k) {
    for (int lane = 0; lane < kBlock; ++lane) {
      const uint32_t sign = ((args.codes[k][lane] >> dropped >> sign_bit) ^ negate) & 1;
      // A slow lane is computed again by dot(): zeros keep its arithmetic here within range.
      const int32_t kept = low[lane] ? 0 : significand[k][lane];
      const int32_t relative = kept != 0 ? exponent[k][lane] - block.shift[lane] : 0;
      const float value = static_cast<float>(kept) * power_of_two(relative - fraction_bits);
      block.value[k][lane] = sign != 0 ? -value : value;
      block.exponent[k][lane] = static_cast<int8_t>(kept != 0 ? relative : kZeroExponent);
    }
  }
  if (!args.grouped) return;
  for (int group = 0; group < args.k_count / kGroup; ++group) {
    for (int lane = 0; lane < kBlock; ++lane) {
      uint32_t bits = 0;
      for (int t = 0; t < kGroup; ++t) bits |= (significand[group * kGroup + t][lane] != 0 ? 1u : 0u) << t;
      block.nonzero[group][lane] = static_cast<uint16_t>(bits);
    }
  }
}

TCGEN05_INLINE void decode_any(const DecodeArgs& args) {
  if (info(args.format).exponent_bits == 0) {
    decode_integers(args);
    std::fill_n(args.block->slow, kBlock, uint8_t{0});
  } else {
    decode_floats(args);
  }
}

TCGEN05_VARIANTS(decode_variant, DecodeArgs, decode_any)

}  // namespace

void decode_block(Format format, int k_count, bool negate, bool grouped, const uint32_t (*codes)[kBlock], Block& block) {
  decode_variant({format, k_count, negate, grouped, codes, &block});
}

void decode_scales(ScaleFormat format, int groups, int scales, int lanes, const uint8_t (*bytes)[4], ScaleBlock& block) {
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

void Panel::build(const Operand& operand, const Arithmetic& arithmetic, bool negate, int rows, int bank_rows) {
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
    const int first = index / blocks_per_bank_ * bank_rows + inside, lanes = std::min(kBlock, bank_rows - inside);
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

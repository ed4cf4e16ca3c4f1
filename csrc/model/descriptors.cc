#include "model/descriptors.h"

#include <stdexcept>
#include <string>

namespace tcgen05::model {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

std::string hex(uint64_t value) {
  static const char* digits = "0123456789abcdef";
  std::string text;
  do {
    text.insert(text.begin(), digits[value & 15]);
    value >>= 4;
  } while (value != 0);
  return "0x" + text;
}

// Swizzle code of bits 61-63 -> mode, -1 where the code is reserved.
constexpr int kSwizzleMode[8] = {0, 4, 3, -1, 2, -1, 1, -1};

}  // namespace

SharedDescriptor decode_shared_descriptor(uint64_t word, const char* operand) {
  constexpr Field kStart{0, 14}, kLdo{16, 14}, kSdo{32, 14}, kBaseOffset{49, 3}, kLdoMode{52, 1},
      kSwizzle{61, 3};
  constexpr uint64_t kReserved = (uint64_t{3} << 14) | (uint64_t{3} << 30) | (uint64_t{0xFF} << 53);
  const std::string name = std::string(operand) + " descriptor " + hex(word) + ": ";
  if (word & kReserved) refuse(name + "reserved bits set (14-15, 30-31 and 53-60 must be 0)");
  SharedDescriptor descriptor;
  descriptor.start = kStart.of(word) << 4;
  descriptor.ldo = kLdo.of(word) << 4;
  descriptor.sdo = kSdo.of(word) << 4;
  descriptor.swizzle = kSwizzleMode[kSwizzle.of(word)];
  if (descriptor.swizzle < 0) {
    refuse(name + "swizzle code " + std::to_string(kSwizzle.of(word)) +
           " is reserved, allowed: 0, 1, 2, 4, 6");
  }
  if (kLdoMode.of(word) != 0)
    refuse(name + "LDO mode (bit 52) must be 0: absolute addresses exist for K=96 only");
  // OQ8: the base offset acts with a swizzle only, and there must be 0.
  if (descriptor.swizzle != 0 && kBaseOffset.of(word) != 0) {
    refuse(name + "base offset (bits 49-51) is " + std::to_string(kBaseOffset.of(word)) +
           ", must be 0 with a swizzle (OQ8)");
  }
  return descriptor;
}

InstructionDescriptor decode_instruction_descriptor(Kind kind, uint32_t word) {
  constexpr Field kSelector{0, 2}, kSparse{2, 1}, kSaturate{3, 1}, kDFormat{4, 2}, kAFormat{7, 3},
      kBFormat{10, 3};
  constexpr Field kNegateA{13, 1}, kNegateB{14, 1}, kTransposeA{15, 1}, kTransposeB{16, 1};
  constexpr Field kN{17, 6}, kM{24, 5}, kMaxShift{30, 2};
  constexpr Field kSfbId{4, 2}, kScaleType{23, 1}, kSfaId{29, 2}, kK96{31, 1};
  const bool fp4 = kind == Kind::mxf4 || kind == Kind::mxf4nvf4;
  const bool scaled = fp4 || kind == Kind::mxf8f6f4;
  // Reserved: dense 6, 23, 29; mxf8f6f4 0, 1, 3, 6, 24-26, 31; mxf4 kinds 0, 1, 3, 6, 12, 15, 16, 24-26.
  // Bits 24-26 are the low bits of M/16, which M = 128 and 256 leave 0: the M rule covers them.
  const uint32_t reserved = fp4 ? 0x0001904Bu : scaled ? 0x8000004Bu : 0x20800040u;
  if (word & reserved) {
    refuse("instruction descriptor " + hex(word) + ": reserved bits " + hex(word & reserved) +
           " set for kind " + std::string(kKindNames[static_cast<int>(kind)]));
  }
  InstructionDescriptor d;
  d.sparse = kSparse.of(word);
  d.a_format = kAFormat.of(word);
  d.b_format = kBFormat.of(word);
  d.negate_a = kNegateA.of(word);
  d.negate_b = kNegateB.of(word);
  d.a_mn_major = kTransposeA.of(word);
  d.b_mn_major = kTransposeB.of(word);
  d.n = static_cast<int>(kN.of(word)) * 8;
  d.m = static_cast<int>(kM.of(word)) * 16;
  if (scaled) {
    d.sfb_id = kSfbId.of(word);
    d.scale_type = kScaleType.of(word);
    d.sfa_id = kSfaId.of(word);
    d.k96 = kK96.of(word);
  } else {
    d.sparsity_selector = kSelector.of(word);
    d.saturate = kSaturate.of(word);
    d.d_format = kDFormat.of(word);
    d.max_shift = kMaxShift.of(word);
  }
  return d;
}

bool ZeroColumnMask::zeroed(int bank, int column) const {
  if (!enabled) return false;
  // OQ10: the skip span is the zeroed one. The start count says how much of the first span is gone.
  const uint32_t first = first_span_zero[bank] ? zero_span : use_span;
  const uint32_t left = first - start_count[bank];
  const uint32_t position = static_cast<uint32_t>(column);
  if (position < left) return first_span_zero[bank];
  const uint32_t phase = (position - left) % (zero_span + use_span);
  const uint32_t next = first_span_zero[bank] ? use_span : zero_span;
  return (phase < next) != first_span_zero[bank];
}

ZeroColumnMask decode_zero_column_mask(uint64_t word) {
  constexpr Field kEnabled{39, 1}, kSkip{40, 8}, kUse{48, 8}, kShift{56, 6};
  constexpr Field kReservedLow{36, 3}, kReservedHigh{62, 2};
  ZeroColumnMask mask;
  mask.enabled = kEnabled.of(word);
  mask.column_shift = kShift.of(word);
  // With bit 39 clear, bits 0-55 are ignored (OQ15).
  if (kReservedHigh.of(word) != 0 || (mask.enabled && kReservedLow.of(word) != 0)) {
    refuse("zero_column_mask " + hex(word) + ": reserved bits set (36-38 and 62-63 must be 0)");
  }
  if (!mask.enabled) return mask;
  mask.zero_span = kSkip.of(word) + 1;
  mask.use_span = kUse.of(word) + 1;
  for (int bank = 0; bank < 4; ++bank) {
    mask.start_count[bank] = Field{8 * bank, 8}.of(word);
    mask.first_span_zero[bank] = Field{32 + bank, 1}.of(word);
    const uint32_t first = mask.first_span_zero[bank] ? mask.zero_span : mask.use_span;
    if (mask.start_count[bank] >= first) {
      refuse("zero_column_mask " + hex(word) + ": start count " + std::to_string(mask.start_count[bank]) +
             " of sub-mask " + std::to_string(bank) + " must be below its first span of " +
             std::to_string(first) + " columns (OQ15)");
    }
  }
  return mask;
}

}  // namespace tcgen05::model

// Bit fields of the descriptors as the instruction reads them (PTX ISA 9.7.16.4-5; ptx_contract 4, 5, 9).
// Only fields: what may be combined stands in form.h.
#pragma once

#include <cstdint>

#include "plan/opcode.h"

namespace tcgen05::model {

// One bit field: value = (word >> low) & (2^width - 1).
struct Field {
  int low, width;
  constexpr uint32_t of(uint64_t word) const {
    return static_cast<uint32_t>((word >> low) & ((uint64_t{1} << width) - 1));
  }
};

// Shared-memory descriptor. `swizzle` is the mode 0..4 (none, 32B, 64B, 128B, 128B with 32B atoms).
struct SharedDescriptor {
  uint32_t start = 0, ldo = 0, sdo = 0;  // bytes
  int swizzle = 0;
};

// Throws std::invalid_argument; `operand` ("a", "b") names the culprit. Bits 46-48 are not looked at.
SharedDescriptor decode_shared_descriptor(uint64_t word, const char* operand);

// Instruction descriptor, raw codes; the fields of the other family stay 0.
struct InstructionDescriptor {
  int m = 0, n = 0;
  uint32_t a_format = 0, b_format = 0, d_format = 0;
  bool sparse = false, saturate = false;
  bool negate_a = false, negate_b = false;
  bool a_mn_major = false, b_mn_major = false;
  uint32_t sparsity_selector = 0, max_shift = 0;             // dense and .ws
  uint32_t scale_type = 0, sfa_id = 0, sfb_id = 0, k96 = 0;  // block scaled
};

// Decodes by the table that `kind` selects. Throws when a bit outside the table is set.
InstructionDescriptor decode_instruction_descriptor(Kind kind, uint32_t word);

// Zero-column mask (.ws).
struct ZeroColumnMask {
  bool enabled = false;
  uint32_t start_count[4] = {};
  bool first_span_zero[4] = {};
  uint32_t zero_span = 1, use_span = 1;  // columns
  uint32_t column_shift = 0;

  // Whether column `column` of sub-mask `bank` reads B as zero.
  bool zeroed(int bank, int column) const;
};

// Throws for reserved bits and, when bit 39 is set, for a start count not below its first span (OQ15).
ZeroColumnMask decode_zero_column_mask(uint64_t word);

}  // namespace tcgen05::model

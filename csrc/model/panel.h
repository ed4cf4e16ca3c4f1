// One operand of one K step, decoded once for the arithmetic of tile.h.
#pragma once

#include <cstdint>
#include <memory>

#include "model/form.h"
#include "model/shared_walk.h"

namespace tcgen05::model {

inline constexpr int kBlock = 32;  // rows of A or columns of B decoded and multiplied together
inline constexpr int kGroups = kMaxK / kGroup;
inline constexpr int kWidestRange =
    30;  // binades between the elements of one row (8-bit exponents alone reach it)
inline constexpr int kHeadroom =
    2;  // values of the fused kinds are 2^-kHeadroom too small: products stay below 1
inline constexpr int kSmallestSum = -60;  // of the relative exponents of two non-zero elements
inline constexpr int8_t kZeroExponent =
    -64;  // of a zero: a sum with one is below kSmallestSum and fits 8 bits

// The elements of 32 rows of A or columns of B, lane by lane. An element's value is
// value * 2^(shift + kHeadroom), exactly, the shift being the largest exponent of the lane; `exponent` is
// relative to it. FP4 groups and integers are the plain values. Floats are never subnormal, so the
// caller's flush-to-zero mode does not matter.
struct alignas(64) Block {
  float value[kMaxK][kBlock];
  int8_t exponent[kMaxK][kBlock];
  int32_t shift[kBlock];
  uint16_t nonzero[kGroups][kBlock];  // FP4 groups: which of the 16 elements are not zero
  uint8_t slow[kBlock];               // infinities, NaNs or too wide a range: leave it to dot()
};

// Scale factors of 32 rows or columns.
struct alignas(64) ScaleBlock {
  int32_t exponent[kGroups][kBlock] = {};
  float significand[kGroups][kBlock] = {};
  uint8_t slow[kBlock] = {};  // NaN
};

// `lanes` rows (columns) from codes[k][lane]; the other lanes of the block are zeros.
void decode_block(Format format, int k_count, bool negate, bool grouped, const uint32_t (*codes)[kBlock],
                  Block& block);

// bytes[lane]: the scales of one row; `groups` of them are filled (1, or the 4 groups of FP4).
void decode_scales(ScaleFormat format, int groups, int scales, int lanes, const uint8_t (*bytes)[4],
                   ScaleBlock& block);

// The codes of one row's 32 stored bytes.
void unpack_codes(Container container, const uint8_t* row, uint32_t* codes);

// An operand as blocks. Each bank of columns starts a block of its own.
class Panel {
 public:
  // Decodes `rows` rows of 32 stored bytes, `bank_rows` per bank.
  void build(const Operand& operand, const Arithmetic& arithmetic, bool negate, int rows, int bank_rows);

  uint8_t (*raw()) [kStepBytes] { return raw_; } const uint8_t* raw(int row) const { return raw_[row]; }
  const Block& block(int index) const { return blocks_[index]; }
  int blocks_per_bank() const { return blocks_per_bank_; }
  Container container() const { return container_; }

 private:
  uint8_t raw_[kMaxRows][kStepBytes];
  std::unique_ptr<Block[]> blocks_;
  int capacity_ = 0, blocks_per_bank_ = 0;
  Container container_ = Container::plain8;
};

}  // namespace tcgen05::model

// One operand of one K step, decoded once for the arithmetic of tile.h.
#pragma once

#include <cstdint>
#include <memory>

#include "model/form.h"
#include "model/shared_walk.h"

namespace tcgen05::model {

inline constexpr int kBlock = 32;  // rows of A or columns of B decoded and multiplied together
inline constexpr int kGroups = kMaxK / kGroup;
inline constexpr int kHeadroom =
    2;  // values of the fused kinds are 2^-kHeadroom too small: products stay below 1
inline constexpr int kKeptRange = 50;  // binades below a lane's largest exponent that are kept
inline constexpr int kSmallestSum =
    -2 * kKeptRange;                           // of the relative exponents of two elements that are not zero
inline constexpr int8_t kZeroExponent = -127;  // of a zero: a saturated sum with one is below kSmallestSum
// The smallest relative top exponents that a vector kernel can do: its power of two stays in range; and what
// a wide lane drops, at most 4 * 2^-(kKeptRange + 1), is cut to nothing at 25 bits below the top.
inline constexpr int kSmallestTop = -90, kSmallestWideTop = kFractionBits + 1 - kKeptRange;

// The elements of 32 rows of A or columns of B, lane by lane. An element is value * 2^(shift + kHeadroom),
// exactly, the shift being the largest exponent of the lane; `exponent` is relative to it. FP4 groups and
// integers are the plain values. Infinities, NaNs and what a wide lane drops are zeros here, and themselves
// (the dropped ones tiny) in `marks`, which are there when `marked`. Floats are never subnormal, so the
// caller's flush-to-zero mode does not matter.
struct alignas(64) Block {
  float value[kMaxK][kBlock];
  int8_t exponent[kMaxK][kBlock];
  int32_t shift[kBlock];
  uint16_t nonzero[kGroups][kBlock];  // FP4 groups: which of the 16 elements are not zero
  uint8_t special[kBlock];            // infinities or NaNs
  uint8_t wide[kBlock];               // elements more than kKeptRange binades below the largest
  bool marked;                        // some lane is special or wide
  float marks[kMaxK][kBlock];

  const float (*signs() const)[kBlock] { return marked ? marks : value; }
};

// Scale factors of 32 rows or columns.
struct alignas(64) ScaleBlock {
  int32_t exponent[kGroups][kBlock] = {};
  float significand[kGroups][kBlock] = {};
  uint8_t nan[kBlock] = {};
};

// 32 rows (columns) from codes[k][lane].
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

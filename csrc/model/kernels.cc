#include "model/kernels.h"

#include "model/dispatch.h"
#include "model/vectors.h"

namespace tcgen05::model {
namespace {

constexpr int kVectors = kBlock / kVector;

// The accumulator's fields, and what of it needs dot().
struct Accumulators {
  Ints significand, exponent, negative, special;
};

template <Accumulator kD>
TCGEN05_INLINE void split(const Ints& bits, Accumulators& c) {
  constexpr int kFraction = kD == Accumulator::f16 ? 10 : 23, kTop = kD == Accumulator::f16 ? 31 : 255;
  const Ints field = (bits >> kFraction) & kTop;
  c.significand = (bits & ((1 << kFraction) - 1)) | (field != 0 ? Ints{} + (1 << kFraction) : Ints{});
  c.exponent = MAX(field, Ints{} + 1) - (kTop >> 1);
  c.negative = kD == Accumulator::f16 ? (bits << 16) >> 31 : bits >> 31;
  c.special = field == kTop;
}

// sum * 2^unit to float32, toward zero; lanes that are no normal number are marked.
TCGEN05_INLINE void to_f32(const Ints& sum, const Ints& unit, Ints& out, Ints& slow) {
  const Ints negative = sum >> 31;
  const Ints magnitude = WRAPPING_SUB(sum ^ negative, negative);
  // Clears the bit below the 24 kept ones (and some below it), so that the conversion never rounds up.
  const Ints kept = magnitude & ~(magnitude >> 24);
  const Floats value = __builtin_convertvector(kept, Floats);
  Ints bits;
  std::memcpy(&bits, &value, sizeof bits);
  const Ints field = (bits >> 23) + unit;
  const Ints live = sum != 0;
  slow |= live & ((field < 1) | (field > 254) | (magnitude < 0));
  out = live & (WRAPPING_ADD(bits, unit << 23) | (negative & static_cast<int32_t>(0x80000000)));
}

// sum * 2^unit to float16, to nearest even. unit >= kFloorF16 - kFractionBits.
TCGEN05_INLINE void to_f16(const Ints& sum, const Ints& unit, Ints& out, Ints& slow) {
  const Ints negative = sum >> 31;
  const Ints magnitude = WRAPPING_SUB(sum ^ negative, negative);
  slow |= magnitude < 0;
  const Floats value = __builtin_convertvector(magnitude & ~(magnitude >> 24), Floats);
  Ints bits;
  std::memcpy(&bits, &value, sizeof bits);
  const Ints top = (bits >> 23) - 127;
  const Ints drop = MAX(top - 10, -24 - unit);
  const Ints right = MIN(MAX(drop, Ints{}), Ints{} + 31), left = MIN(MAX(-drop, Ints{}), Ints{} + 31);
  const Ints floor = magnitude >> right;
  const Ints half = right > 0 ? (Ints{} + 1) << MAX(right - 1, Ints{}) : Ints{};
  const Ints rest = magnitude - (floor << right);
  const Ints up = ((rest > half) | ((rest == half) & ((floor & 1) != 0))) & (right > 0);
  const Ints rounded = (floor - up) << left;
  const Ints exponent = top + unit;
  const Ints normal = rounded + (exponent >= -14 ? (exponent + 14) << 10 : Ints{});
  const Ints clamped = MIN(normal, Ints{} + 0x7C00);
  const Ints live = (sum != 0) & (rounded != 0);
  out = live & (clamped | (negative & 0x8000));
}

// The largest product exponent per column (numerics.md 1.4), relative to the shifts.
template <int kK>
TCGEN05_INLINE void top_exponents(const KernelArgs& args, int row, int8_t* out) {
  constexpr int kBytes = static_cast<int>(sizeof(Bytes));
  for (int lane = 0; lane < kBlock; lane += kBytes) {
    Bytes top;
    std::memset(&top, -128, sizeof top);
    for (int k = 0; k < kK; ++k) {
      LOAD(UnsignedBytes, exponent, args.b->exponent[k] + lane);
      const UnsignedBytes wrapped = exponent + static_cast<uint8_t>(args.a->exponent[k][row]);
      LOAD(Bytes, sum, &wrapped);
      // Sums of two exponents are not positive; a positive one has wrapped around, with a zero in it.
      top = (sum > top) & (sum <= 0) ? sum : top;
    }
    std::memcpy(out + lane, &top, sizeof top);
  }
}

// Lanes whose top exponent is too small for the vector arithmetic.
TCGEN05_INLINE void check_tops(const KernelArgs& args, int row, int lane, const Ints& relative, Ints& slow) {
  LOAD(LaneBytes, column_wide, args.b->wide + lane);
  const Ints wide = (__builtin_convertvector(column_wide, Ints) | args.a->wide[row]) != 0;
  const Ints products = relative >= kSmallestSum;
  slow |= wide ? relative < kSmallestWideTop : products & (relative < kSmallestTop);
}

// The fused kinds. A product a * b of two floats is exact (at most 22 bits); times 2^(25 - E) and
// converted to an integer it is cut toward zero, which is the alignment of numerics.md 1.5. Half of the
// products stay below 2^31, both halves are added with a check.
template <Accumulator kD, int kK, bool kScaled>
TCGEN05_INLINE void fused_row(const KernelArgs& args, int row, const uint32_t* c_in, uint32_t* d,
                              int32_t* slow) {
  constexpr int kFloor = kD == Accumulator::f16 ? kFloorF16 : kFloorF32;
  constexpr int kFraction = kD == Accumulator::f16 ? 10 : 23;
  int8_t tops[kBlock];
  top_exponents<kK>(args, row, tops);
  int32_t a_shift = args.a->shift[row];
  if (kScaled) a_shift += args.a_scales->exponent[0][row];
  for (int v = 0; v < kVectors; ++v) {
    const int lane = v * kVector;
    LOAD(Ints, c_bits, c_in + lane);
    LOAD(LaneBytes, top_bytes, tops + lane);
    LOAD(Ints, shift, args.b->shift + lane);
    if (kScaled) {
      LOAD(Ints, scale, args.b_scales->exponent[0] + lane);
      shift += scale;
    }
    shift += a_shift;
    Accumulators c;
    split<kD>(c_bits, c);
    const Ints relative = __builtin_convertvector(top_bytes, Ints);
    const Ints products = relative >= kSmallestSum ? relative + shift : Ints{} + kFloor;
    Ints top = MAX(products, Ints{} + kFloor);
    top = c.significand != 0 ? MAX(top, c.exponent) : top;
    const Ints aligned =
        (c.significand << (kFractionBits - kFraction)) >> MIN(MAX(top - c.exponent, Ints{}), Ints{} + 31);
    Ints first = (aligned ^ c.negative) - c.negative, second = Ints{};
    const Ints power = MIN(MAX(kFractionBits + 2 * kHeadroom + shift - top, Ints{} - 126), Ints{} + 126);
    const Ints scale_bits = (power + 127) << 23;
    Floats scale;
    std::memcpy(&scale, &scale_bits, sizeof scale);
#pragma GCC unroll 16
    for (int k = 0; k < kK / 2; ++k) {
      LOAD(Floats, b, args.b->value[k] + lane);
      first += __builtin_convertvector(args.a->value[k][row] * b * scale, Ints);
    }
#pragma GCC unroll 16
    for (int k = kK / 2; k < kK; ++k) {
      LOAD(Floats, b, args.b->value[k] + lane);
      second += __builtin_convertvector(args.a->value[k][row] * b * scale, Ints);
    }
    const Ints sum = WRAPPING_ADD(first, second);
    Ints marked = c.special | (((first ^ sum) & (second ^ sum)) < 0);
    check_tops(args, row, lane, relative, marked);
    Ints result;
    if (kD == Accumulator::f16) {
      to_f16(sum, top - kFractionBits, result, marked);
    } else {
      to_f32(sum, top - kFractionBits, result, marked);
    }
    std::memcpy(d + lane, &result, sizeof result);
    std::memcpy(slow + lane, &marked, sizeof marked);
  }
}

// int8: every partial sum of 32 products is below 2^24, so floats hold it exactly.
TCGEN05_INLINE void integer_row(const KernelArgs& args, int row, const uint32_t* c_in, uint32_t* d) {
  for (int v = 0; v < kVectors; ++v) {
    const int lane = v * kVector;
    Floats total = Floats{};
#pragma GCC unroll 32
    for (int k = 0; k < 32; ++k) {
      LOAD(Floats, b, args.b->value[k] + lane);
      total += args.a->value[k][row] * b;
    }
    LOAD(Ints, c, c_in + lane);
    const Ints dot = __builtin_convertvector(total, Ints);
    Ints sum = WRAPPING_ADD(c, dot);
    if (args.arithmetic->saturate) {
      const Ints over = ((c ^ sum) & (dot ^ sum)) < 0;
      sum = over ? (c >> 31) ^ 0x7FFFFFFF : sum;
    }
    std::memcpy(d + lane, &sum, sizeof sum);
  }
}

// Cuts toward zero. Beyond 2^23 a float has no fraction; below, the way over int32 is exact.
TCGEN05_INLINE void cut(Floats& value) {
  Ints bits;
  std::memcpy(&bits, &value, sizeof bits);
  const Ints small = (bits & 0x7FFFFFFF) < ((127 + 24) << 23);
  const Floats safe = small ? value : Floats{};
  const Floats whole = __builtin_convertvector(__builtin_convertvector(safe, Ints), Floats);
  value = small ? whole : value;
}

// FP4 block-scaled kinds (numerics.md 2): group sums are integers below 2^24 / 4 in quarters, so floats
// hold them, and their products with the scales' significands, exactly; doubles hold the aligned sum.
TCGEN05_INLINE void grouped_row(const KernelArgs& args, int row, const uint32_t* c_in, uint32_t* d,
                                int32_t* slow) {
  const int scale_fraction = args.arithmetic->scale == ScaleFormat::ue4m3 ? 6 : 0;
  for (int v = 0; v < kVectors; ++v) {
    const int lane = v * kVector;
    LOAD(Ints, c_bits, c_in + lane);
    Accumulators c;
    split<Accumulator::f32>(c_bits, c);
    Ints top = Ints{} + kGroupedFloor;
    top = c.significand != 0 ? MAX(top, c.exponent) : top;
    Floats terms[kGroups];
    Ints exponents[kGroups];
    for (int group = 0; group < kGroups; ++group) {
      Floats sum = Floats{};
#pragma GCC unroll 16
      for (int k = group * kGroup; k < (group + 1) * kGroup; ++k) {
        LOAD(Floats, b, args.b->value[k] + lane);
        sum += args.a->value[k][row] * b;
      }
      LOAD(Floats, significand, args.b_scales->significand[group] + lane);
      LOAD(Ints, exponent, args.b_scales->exponent[group] + lane);
      LOAD(LaneHalves, nonzero, args.b->nonzero[group] + lane);
      const Floats scale = significand * args.a_scales->significand[group][row];
      const Ints both = __builtin_convertvector(nonzero & args.a->nonzero[group][row], Ints);
      const Ints live = (both != 0) & (scale != 0);
      exponents[group] = exponent + args.a_scales->exponent[group][row];
      terms[group] = sum * scale;
      top = live ? MAX(top, exponents[group]) : top;
    }
    const Ints c_power = MAX(kGroupedFractionBits - 23 + c.exponent - top, Ints{} - 126);
    const Ints c_scale_bits = (MIN(c_power, Ints{} + 126) + 127) << 23;
    Floats c_scale;
    std::memcpy(&c_scale, &c_scale_bits, sizeof c_scale);
    Floats c_term = __builtin_convertvector((c.significand ^ c.negative) - c.negative, Floats) * c_scale;
    cut(c_term);
    Doubles total = __builtin_convertvector(c_term, Doubles);
    for (int group = 0; group < kGroups; ++group) {
      const Ints power = kGroupedFractionBits - scale_fraction + exponents[group] - top;
      const Ints scale_bits = (MIN(MAX(power, Ints{} - 126), Ints{} + 64) + 127) << 23;
      Floats scale;
      std::memcpy(&scale, &scale_bits, sizeof scale);
      Floats term = terms[group] * scale;
      cut(term);
      total += __builtin_convertvector(term, Doubles);
    }
    // 24 significant bits of the exact sum, toward zero.
    Longs total_bits;
    std::memcpy(&total_bits, &total, sizeof total);
    total_bits &= ~int64_t{0x1FFFFFFF};
    std::memcpy(&total, &total_bits, sizeof total);
    const Floats value = __builtin_convertvector(total, Floats);
    Ints bits;
    std::memcpy(&bits, &value, sizeof bits);
    const Ints unit = top - kGroupedFractionBits;
    const Ints field = ((bits >> 23) & 255) + unit, live = (bits & 0x7FFFFFFF) != 0;
    const Ints marked = c.special | (live & ((field < 1) | (field > 254)));
    const Ints result = live & WRAPPING_ADD(bits, unit << 23);
    std::memcpy(d + lane, &result, sizeof result);
    std::memcpy(slow + lane, &marked, sizeof marked);
  }
}

enum class Row { fused, integer, grouped };

template <Row kRow, Accumulator kD, int kK, bool kScaled>
TCGEN05_INLINE void all_rows(const KernelArgs& args) {
  const uint32_t slow_columns = special_lanes(*args.b, args.b_scales),
                 slow_rows = special_lanes(*args.a, args.a_scales);
  const size_t bytes = static_cast<size_t>(args.columns) * sizeof(uint32_t);
  for (int row = 0; row < args.rows; ++row) {
    uint32_t* d = args.d[row];
    if (d == nullptr) continue;
    alignas(32) uint32_t c[kBlock] = {}, out[kBlock];
    alignas(32) int32_t marked[kBlock] = {};
    if (args.enable_input_d) std::memcpy(c, d, bytes);
    if (kRow == Row::integer) integer_row(args, row, c, out);
    if (kRow == Row::grouped) grouped_row(args, row, c, out, marked);
    if (kRow == Row::fused) fused_row<kD, kK, kScaled>(args, row, c, out, marked);
    std::memcpy(d, out, bytes);
    if (kRow == Row::integer) continue;
    uint32_t slow = (slow_rows >> row) & 1 ? ~0u : slow_columns;
    for (int lane = 0; lane < kBlock; ++lane) slow |= static_cast<uint32_t>(marked[lane] & 1) << lane;
    if (slow != 0) args.redo(args.context, row, c, slow);
  }
}

template <int kK>
TCGEN05_INLINE void fused_rows(const KernelArgs& args) {
  if (args.arithmetic->d == Accumulator::f16) {
    all_rows<Row::fused, Accumulator::f16, kK, false>(args);
  } else {
    all_rows<Row::fused, Accumulator::f32, kK, false>(args);
  }
}

TCGEN05_INLINE void any_kernel(const KernelArgs& args) {
  const Arithmetic& arithmetic = *args.arithmetic;
  if (arithmetic.integer()) return all_rows<Row::integer, Accumulator::s32, 32, false>(args);
  if (arithmetic.grouped) return all_rows<Row::grouped, Accumulator::f32, 64, true>(args);
  if (arithmetic.scale != ScaleFormat::none) return all_rows<Row::fused, Accumulator::f32, 32, true>(args);
  if (arithmetic.k == 8) return fused_rows<8>(args);
  if (arithmetic.k == 16) return fused_rows<16>(args);
  return fused_rows<32>(args);
}

TCGEN05_INLINE void all_signs(const SignsArgs& args) {
  Floats sums[kVectors];
  std::memcpy(sums, args.sum, sizeof sums);
  for (int k = 0; k < args.k; ++k) {
    for (int v = 0; v < kVectors; ++v) {
      LOAD(Floats, b, args.b[k] + v * kVector);
      sums[v] += args.a[k][args.row] * b;
    }
  }
  std::memcpy(args.sum, sums, sizeof sums);
}

TCGEN05_VARIANTS(run_variant, KernelArgs, any_kernel)
TCGEN05_VARIANTS(signs_variant, SignsArgs, all_signs)

}  // namespace

void run_kernel(const KernelArgs& args) {
  if (!run_avx512(args)) run_variant(args);
}

void add_signs(const SignsArgs& args) { signs_variant(args); }

}  // namespace tcgen05::model

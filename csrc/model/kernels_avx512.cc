// All kinds but i8 on AVX-512, by intrinsics: masks, embedded rounding and half conversions save a third
// of what the compiler makes of kernels.cc.
#include "model/dispatch.h"
#include "model/kernels.h"

#if defined(TCGEN05_AVX512)
// GCC before 13 takes the undefined vectors inside its own intrinsics for mistakes (its bug 105593).
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

namespace tcgen05::model {
namespace {

constexpr int kWidth = 16;  // lanes of a vector
constexpr int kHalves = kBlock / kWidth;

// One block of columns, as all rows need it.
struct Columns {
  const Block* block;
  int32_t shift[kBlock];  // of values and scales together
  __mmask16 live[kHalves];
  alignas(32) int8_t smallest[kBlock];  // relative top exponents that the arithmetic can do
  uint32_t wide, special;
};

// Per column, before the products: numerics.md 1.4 for the top exponent, C aligned, and what is added to
// the exponent of a product to align it.
struct Aligned {
  __m512i top, c, power;
  __mmask16 slow;
};

TCGEN05_AVX512 inline __m512i splat(int32_t value) { return _mm512_set1_epi32(value); }
TCGEN05_AVX512 inline __m512i scaled(__m512i bits, __m512i power) {
  return _mm512_add_epi32(bits, _mm512_slli_epi32(power, 23));
}
TCGEN05_AVX512 inline __m512i cut(__m512i bits) { return _mm512_cvttps_epi32(_mm512_castsi512_ps(bits)); }

template <bool kHalf>
TCGEN05_AVX512 inline Aligned align(__m512i c_bits, __m512i relative, __m512i shift) {
  Aligned out;
  const __mmask16 products = _mm512_cmpge_epi32_mask(relative, splat(kSmallestSum));
  const __m512i floor = splat(kHalf ? kFloorF16 : kFloorF32);
  __m512i top = _mm512_mask_add_epi32(floor, products, relative, shift);
  if (kHalf) {
    // Half subnormals become normal floats, but keep the exponent -14.
    c_bits = _mm512_castps_si512(_mm512_cvtph_ps(_mm512_cvtepi32_epi16(c_bits)));
    const __m512i field = _mm512_srli_epi32(_mm512_slli_epi32(c_bits, 1), 24);
    const __mmask16 nonzero = _mm512_test_epi32_mask(field, field);
    const __m512i exponent = _mm512_max_epi32(_mm512_sub_epi32(field, splat(127)), splat(-14));
    out.slow = _mm512_cmpeq_epi32_mask(field, splat(255));
    top = _mm512_max_epi32(top, floor);
    out.top = _mm512_mask_max_epi32(top, nonzero, top, exponent);
    const __m512i power = _mm512_sub_epi32(splat(kFractionBits), out.top);
    out.c = _mm512_maskz_cvttps_epi32(nonzero, _mm512_castsi512_ps(scaled(c_bits, power)));
    out.power = power;
  } else {
    const __m512i magnitude = _mm512_slli_epi32(c_bits, 1), field = _mm512_srli_epi32(magnitude, 24);
    const __mmask16 nonzero = _mm512_test_epi32_mask(magnitude, magnitude);
    // Subnormal and special C, and products below the exponent -127 that a zero C has here: dot().
    out.slow = _mm512_mask_cmpgt_epu32_mask(nonzero, _mm512_sub_epi32(field, splat(1)), splat(253)) |
               _mm512_mask_cmplt_epi32_mask(products, top, splat(-126));
    out.top = _mm512_max_epi32(top, _mm512_sub_epi32(field, splat(127)));
    const __m512i power = _mm512_sub_epi32(splat(kFractionBits), out.top);
    const __mmask16 reaches =
        _mm512_mask_cmpgt_epi32_mask(nonzero, _mm512_add_epi32(field, power), _mm512_setzero_si512());
    out.c = _mm512_maskz_cvttps_epi32(reaches, _mm512_castsi512_ps(scaled(c_bits, power)));
    out.power = power;
  }
  // Values have kHeadroom bits to spare, so that every product is below 1: a negative power leaves nothing.
  const __m512i power = _mm512_add_epi32(out.power, _mm512_add_epi32(shift, splat(2 * kHeadroom)));
  out.power = _mm512_slli_epi32(_mm512_maskz_max_epi32(products, power, _mm512_setzero_si512()), 23);
  return out;
}

// The two halves of the sum, S * 2^(top - 25), to bits of D.
template <bool kHalf>
TCGEN05_AVX512 inline __m512i convert(__m512i first, __m512i second, __m512i top, __mmask16& slow) {
  const __m512i sum = _mm512_add_epi32(first, second);
  // (first ^ sum) & (second ^ sum): the sign changed against both, so the sum left 32 bits.
  slow |= _mm512_movepi32_mask(_mm512_ternarylogic_epi32(first, second, sum, 0x42));
  const __mmask16 nonzero = _mm512_test_epi32_mask(sum, sum);
  const __m512 value = _mm512_cvt_roundepi32_ps(sum, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  const __m512i bits = _mm512_castps_si512(value);
  const __m512i unit = _mm512_sub_epi32(top, splat(kFractionBits));
  if (kHalf) {
    // Round to odd, so that the second rounding is the only one.
    const __mmask16 inexact = _mm512_cmpneq_epi32_mask(_mm512_cvttps_epi32(value), sum);
    const __m512i odd = _mm512_mask_or_epi32(bits, inexact, bits, splat(1));
    const __m512i moved = _mm512_maskz_mov_epi32(nonzero, scaled(odd, unit));
    const __m256i half =
        _mm512_cvtps_ph(_mm512_castsi512_ps(moved), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512i out = _mm512_cvtepu16_epi32(half);
    if (SIGNED_UNDERFLOW) return out;
    return _mm512_maskz_mov_epi32(_mm512_test_epi32_mask(out, splat(0x7FFF)), out);
  }
  const __m512i magnitude = scaled(_mm512_and_epi32(bits, splat(0x7FFFFFFF)), unit);
  slow |= _mm512_mask_cmpge_epu32_mask(nonzero, _mm512_sub_epi32(magnitude, splat(0x00800000)),
                                       splat(0x7F000000));
  return _mm512_maskz_or_epi32(nonzero, magnitude, _mm512_and_epi32(sum, splat(INT32_MIN)));
}

template <int kFirst, int kLast>
TCGEN05_AVX512 inline void add_products(const float* a, const Block& b, const Aligned* aligned,
                                        __m512i* sums) {
#pragma GCC unroll 16
  for (int k = kFirst; k < kLast; ++k) {
    const __m512 x = _mm512_set1_ps(a[k * kBlock]);
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; ++h) {
      const __m512 product = _mm512_mul_ps(x, _mm512_load_ps(b.value[k] + h * kWidth));
      sums[h] =
          _mm512_add_epi32(sums[h], cut(_mm512_add_epi32(_mm512_castps_si512(product), aligned[h].power)));
    }
  }
}

// Lanes whose top exponent is too small for this arithmetic.
TCGEN05_AVX512 inline uint32_t small_tops(const Columns& columns, bool wide_row, __m256i tops) {
  const __m256i wide_smallest = _mm256_set1_epi8(kSmallestWideTop);
  const __m256i smallest =
      wide_row ? wide_smallest : _mm256_load_si256(reinterpret_cast<const __m256i*>(columns.smallest));
  const uint32_t products = _mm256_cmpge_epi8_mask(tops, _mm256_set1_epi8(kSmallestSum));
  return _mm256_cmplt_epi8_mask(tops, smallest) & (products | (wide_row ? ~0u : columns.wide));
}

template <int kK, bool kHalf>
TCGEN05_AVX512 inline uint32_t fused_row(const KernelArgs& args, const Columns& columns, int row,
                                         const __m512i* c, uint32_t* d) {
  const Block& b = *columns.block;
  const int32_t a_shift = args.a->shift[row] + (args.a_scales ? args.a_scales->exponent[0][row] : 0);
  const int8_t* a_exponent = &args.a->exponent[0][row];
  __m256i tops = _mm256_set1_epi8(-128);
#pragma GCC unroll 16
  for (int k = 0; k < kK; ++k) {
    const __m256i sum = _mm256_adds_epi8(_mm256_set1_epi8(a_exponent[k * kBlock]),
                                         _mm256_load_si256(reinterpret_cast<const __m256i*>(b.exponent[k])));
    tops = _mm256_max_epi8(tops, sum);
  }
  uint32_t slow = small_tops(columns, args.a->wide[row] != 0, tops);
  Aligned aligned[kHalves];
  __m512i first[kHalves], second[kHalves];
#pragma GCC unroll 2
  for (int h = 0; h < kHalves; ++h) {
    const __m128i half = h == 0 ? _mm256_castsi256_si128(tops) : _mm256_extracti128_si256(tops, 1);
    const __m512i shift = _mm512_add_epi32(splat(a_shift), _mm512_loadu_si512(columns.shift + h * kWidth));
    aligned[h] = align<kHalf>(c[h], _mm512_cvtepi8_epi32(half), shift);
    first[h] = aligned[h].c;
    second[h] = _mm512_setzero_si512();
  }
  const float* a = &args.a->value[0][row];
  add_products<0, kK / 2>(a, b, aligned, first);
  add_products<kK / 2, kK>(a, b, aligned, second);
#pragma GCC unroll 2
  for (int h = 0; h < kHalves; ++h) {
    const __m512i out = convert<kHalf>(first[h], second[h], aligned[h].top, aligned[h].slow);
    _mm512_mask_storeu_epi32(d + h * kWidth, columns.live[h], out);
    slow |= static_cast<uint32_t>(aligned[h].slow & columns.live[h]) << (h * kWidth);
  }
  return slow;
}

// Cuts an exactly scaled float to an integer and adds it to both halves of an exact sum in doubles.
TCGEN05_AVX512 inline void add_cut(__m512 value, __m512i power, __m512d* total) {
  const __m512 moved = _mm512_mul_ps(value, _mm512_castsi512_ps(_mm512_slli_epi32(power, 23)));
  const __m512 whole = _mm512_roundscale_ps(moved, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  total[0] = _mm512_add_pd(total[0], _mm512_cvtps_pd(_mm512_castps512_ps256(whole)));
  total[1] = _mm512_add_pd(total[1], _mm512_cvtps_pd(_mm512_extractf32x8_ps(whole, 1)));
}

// 16 columns of one row of the FP4 block-scaled kinds: as grouped_row of kernels.cc.
TCGEN05_AVX512 inline __m512i grouped_half(const KernelArgs& args, int row, int lane, __m512i c_bits,
                                           __mmask16& slow) {
  const Block& b = *args.b;
  const __m512i magnitude = _mm512_slli_epi32(c_bits, 1), field = _mm512_srli_epi32(magnitude, 24);
  const __mmask16 nonzero = _mm512_test_epi32_mask(magnitude, magnitude);
  slow = _mm512_mask_cmpgt_epu32_mask(nonzero, _mm512_sub_epi32(field, splat(1)), splat(253));
  __m512i top = _mm512_mask_sub_epi32(splat(kGroupedFloor), nonzero, field, splat(127));
  __m512 terms[kGroups];
  __m512i exponents[kGroups];
#pragma GCC unroll 4
  for (int group = 0; group < kGroups; ++group) {
    __m512 sum = _mm512_setzero_ps();
#pragma GCC unroll 16
    for (int k = group * kGroup; k < (group + 1) * kGroup; ++k) {
      sum = _mm512_fmadd_ps(_mm512_set1_ps(args.a->value[k][row]), _mm512_load_ps(b.value[k] + lane), sum);
    }
    const __m512 scale = _mm512_mul_ps(_mm512_load_ps(args.b_scales->significand[group] + lane),
                                       _mm512_set1_ps(args.a_scales->significand[group][row]));
    const __m256i elements = _mm256_load_si256(reinterpret_cast<const __m256i*>(b.nonzero[group] + lane));
    const __mmask16 products = _mm256_test_epi16_mask(
        elements, _mm256_set1_epi16(static_cast<int16_t>(args.a->nonzero[group][row])));
    const __mmask16 live = _mm512_mask_cmp_ps_mask(products, scale, _mm512_setzero_ps(), _CMP_NEQ_OQ);
    exponents[group] = _mm512_add_epi32(_mm512_load_si512(args.b_scales->exponent[group] + lane),
                                        splat(args.a_scales->exponent[group][row]));
    terms[group] = _mm512_mul_ps(sum, scale);
    top = _mm512_mask_max_epi32(top, live, top, exponents[group]);
  }
  // Powers of two as exponent fields, clamped where everything is cut away and where a dead group is 0
  // anyway.
  const __m512i lowest = splat(1), highest = splat(127 + 64);
  const int fraction = args.arithmetic->scale == ScaleFormat::ue4m3 ? 6 : 0;
  __m512d total[2] = {_mm512_setzero_pd(), _mm512_setzero_pd()};
  const __m512i base = _mm512_sub_epi32(splat(127 + kGroupedFractionBits), top);
#pragma GCC unroll 4
  for (int group = 0; group < kGroups; ++group) {
    const __m512i power = _mm512_add_epi32(_mm512_sub_epi32(base, splat(fraction)), exponents[group]);
    add_cut(terms[group], _mm512_min_epi32(_mm512_max_epi32(power, lowest), highest), total);
  }
  // C as a number in [1, 2) with its own exponent.
  const __m512i one =
      _mm512_or_epi32(_mm512_and_epi32(c_bits, splat(static_cast<int32_t>(0x807FFFFF))), splat(127 << 23));
  const __m512 c = _mm512_maskz_mov_ps(nonzero, _mm512_castsi512_ps(one));
  const __m512i c_power = _mm512_add_epi32(base, _mm512_sub_epi32(field, splat(127)));
  add_cut(c, _mm512_min_epi32(_mm512_max_epi32(c_power, lowest), highest), total);
  const __m256 low = _mm512_cvt_roundpd_ps(total[0], _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  const __m256 high = _mm512_cvt_roundpd_ps(total[1], _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  const __m512i bits = _mm512_castps_si512(_mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1));
  const __m512i size = _mm512_and_epi32(bits, splat(INT32_MAX));
  const __mmask16 some = _mm512_test_epi32_mask(size, size);
  const __m512i moved = scaled(size, _mm512_sub_epi32(top, splat(kGroupedFractionBits)));
  slow |= _mm512_mask_cmpge_epu32_mask(some, _mm512_sub_epi32(moved, splat(0x00800000)), splat(0x7F000000));
  return _mm512_maskz_or_epi32(some, moved, _mm512_and_epi32(bits, splat(INT32_MIN)));
}

struct GroupedRow {
  TCGEN05_AVX512 uint32_t operator()(const KernelArgs& args, const Columns& columns, int row,
                                     const __m512i* c, uint32_t* d) const {
    uint32_t slow = 0;
    for (int h = 0; h < kHalves; ++h) {
      __mmask16 marked;
      const __m512i out = grouped_half(args, row, h * kWidth, c[h], marked);
      _mm512_mask_storeu_epi32(d + h * kWidth, columns.live[h], out);
      slow |= static_cast<uint32_t>(marked & columns.live[h]) << (h * kWidth);
    }
    return slow;
  }
};

template <int kK, bool kHalf>
struct FusedRow {
  TCGEN05_AVX512 uint32_t operator()(const KernelArgs& args, const Columns& columns, int row,
                                     const __m512i* c, uint32_t* d) const {
    return fused_row<kK, kHalf>(args, columns, row, c, d);
  }
};

template <typename Row>
TCGEN05_AVX512 void all_rows(const KernelArgs& args) {
  Columns columns;
  columns.block = args.b;
  const uint32_t live = args.columns == kBlock ? ~0u : (1u << args.columns) - 1;
  columns.live[0] = static_cast<__mmask16>(live);
  columns.live[1] = static_cast<__mmask16>(live >> kWidth);
  columns.special = special_lanes(*args.b, args.b_scales) & live;
  const uint32_t special_rows = special_lanes(*args.a, args.a_scales);
  columns.wide = 0;
  for (int lane = 0; lane < kBlock; ++lane) {
    columns.wide |= static_cast<uint32_t>(args.b->wide[lane] != 0) << lane;
    columns.smallest[lane] = args.b->wide[lane] != 0 ? kSmallestWideTop : kSmallestTop;
    columns.shift[lane] = args.b->shift[lane] + (args.b_scales ? args.b_scales->exponent[0][lane] : 0);
  }
  for (int row = 0; row < args.rows; ++row) {
    uint32_t* d = args.d[row];
    if (d == nullptr) continue;
    __m512i c[kHalves] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    if (args.enable_input_d) {
      c[0] = _mm512_maskz_loadu_epi32(columns.live[0], d);
      c[1] = _mm512_maskz_loadu_epi32(columns.live[1], d + kWidth);
    }
    uint32_t slow = Row()(args, columns, row, c, d) | columns.special;
    if ((special_rows >> row) & 1) slow = live;
    if (slow == 0) continue;
    uint32_t before[kBlock];
    _mm512_storeu_si512(before, c[0]);
    _mm512_storeu_si512(before + kWidth, c[1]);
    args.redo(args.context, row, before, slow);
  }
}

}  // namespace

bool run_avx512(const KernelArgs& args) {
  const Arithmetic& arithmetic = *args.arithmetic;
  if (!has_avx512() || arithmetic.integer()) return false;
  const bool half = arithmetic.d == Accumulator::f16;
  if (arithmetic.grouped) {
    all_rows<GroupedRow>(args);
  } else if (arithmetic.k == 8) {
    all_rows<FusedRow<8, false>>(args);
  } else if (arithmetic.k == 16) {
    half ? all_rows<FusedRow<16, true>>(args) : all_rows<FusedRow<16, false>>(args);
  } else {
    half ? all_rows<FusedRow<32, true>>(args) : all_rows<FusedRow<32, false>>(args);
  }
  return true;
}

}  // namespace tcgen05::model

#else

namespace tcgen05::model {
bool run_avx512(const KernelArgs&) { return false; }
}  // namespace tcgen05::model

#endif

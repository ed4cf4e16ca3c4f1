// The arithmetic of mma.sync and wmma on B200, and how fragments lie in registers.
#include <algorithm>
#include <iterator>

#include "model/dot.h"
#include "vsm/ops/matrix.h"
#include "vsm/ops/number.h"

namespace tcgen05::vsm {
namespace {

using model::Format;
using E = MatrixElement;

constexpr MatrixElement kElements[] = {
    {"f16", E::fused, 16, static_cast<int>(Format::f16), false, Type::b32},
    {"bf16", E::fused, 16, static_cast<int>(Format::bf16), false, Type::b32},
    {"tf32", E::fused, 32, static_cast<int>(Format::tf32), false, Type::b32},
    {"e4m3", E::fp8, 8, static_cast<int>(Format::e4m3), false, Type::b32},
    {"e5m2", E::fp8, 8, static_cast<int>(Format::e5m2), false, Type::b32},
    {"s8", E::integer, 8, 0, true, Type::b32},
    {"u8", E::integer, 8, 0, false, Type::b32},
    {"s4", E::integer, 4, 0, true, Type::b32},
    {"u4", E::integer, 4, 0, false, Type::b32},
    {"b1", E::bits, 1, 0, false, Type::b32},
    {"f64", E::f64, 64, 0, false, Type::f64},
    {"f32", E::fused, 32, 0, false, Type::b32},  // accumulators only
    {"s32", E::integer, 32, 0, true, Type::b32},
};

bool is_half(const MatrixElement& e) { return e.width == 16; }

uint32_t add_f32(uint32_t a, uint32_t b) {
  const float r = bit_copy<float>(a) + bit_copy<float>(b);
  return r == r ? bit_copy<uint32_t>(r) : 0x7fffffff;
}

uint32_t f32_to_f16(uint32_t x) {
  return static_cast<uint32_t>(encode_number<F16>(bit_copy<float>(x), Rounding::nearest));
}
uint32_t f16_to_f32(uint32_t x) {
  return static_cast<uint32_t>(encode_number<F32>(decode_number<F16>(x), Rounding::nearest));
}

// f16, bf16, tf32: products and accumulator in one fused sum (numerics.md 1, checked through mma.sync by
// source B). fp8: emulated by the sum without accumulator and a rounded f32 addition (numerics.md 6.C). Where
// C and D differ in type, and for f16 accumulators of fp8, nothing is published: the f32 sum is rounded once
// more.
uint32_t real_element(const Product& p, model::Arithmetic& x, const uint32_t* a, const uint32_t* b,
                      uint32_t c) {
  const bool c_half = is_half(*p.c), d_half = is_half(*p.d);
  if (p.a->kind == E::fused && c_half && d_half) {
    x.d = model::Accumulator::f16;
    return model::dot(x, a, b, c, nullptr, nullptr);
  }
  if (c_half) c = f16_to_f32(c);
  const bool apart = p.a->kind == E::fp8;
  uint32_t r = model::dot(x, a, b, apart ? 0 : c, nullptr, nullptr);
  if (apart) r = add_f32(r, c);
  return d_half ? f32_to_f16(r) : r;
}

int64_t integer_value(const MatrixElement& e, uint64_t code) {
  const int unused = 64 - e.width;
  return e.is_signed ? static_cast<int64_t>(code << unused) >> unused : static_cast<int64_t>(code);
}

uint32_t integer_element(const Product& p, const uint64_t* a, const uint64_t* b, uint64_t c) {
  int64_t sum = static_cast<int32_t>(c);
  for (int k = 0; k < p.k; ++k) {
    sum += p.a->kind == E::bits ? static_cast<int64_t>(p.exclusive ? a[k] ^ b[k] : a[k] & b[k])
                                : integer_value(*p.a, a[k]) * integer_value(*p.b, b[k]);
  }
  if (p.saturate) sum = std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX);
  return static_cast<uint32_t>(sum);
}

// Double precision: fused steps in the order of k.
uint64_t double_element(const Product& p, const uint64_t* a, const uint64_t* b, uint64_t c) {
  double sum = bit_copy<double>(c);
  for (int k = 0; k < p.k; ++k) sum = std::fma(bit_copy<double>(a[k]), bit_copy<double>(b[k]), sum);
  return bit_copy<uint64_t>(sum);
}

void multiply_real(const Product& p, const uint64_t* a, const uint64_t* b, const uint64_t* c, uint64_t* d) {
  model::Arithmetic x;
  x.a = static_cast<Format>(p.a->format);
  x.b = static_cast<Format>(p.b->format);
  x.k = p.k;
  uint32_t left[32][model::kMaxK], right[32][model::kMaxK];
  for (int i = 0; i < p.m; ++i) std::copy_n(a + i * p.k, p.k, left[i]);
  for (int j = 0; j < p.n; ++j) std::copy_n(b + j * p.k, p.k, right[j]);
  for (int i = 0; i < p.m; ++i)
    for (int j = 0; j < p.n; ++j)
      d[i * p.n + j] = real_element(p, x, left[i], right[j], static_cast<uint32_t>(c[i * p.n + j]));
}

}  // namespace

const MatrixElement* find_matrix_element(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kElements), std::end(kElements), [&](const E& e) { return e.name == name; });
  return found == std::end(kElements) ? nullptr : found;
}

Fragment operand_fragment(int rows, int columns, const MatrixElement& e) {
  return {rows, columns, std::max(32 / e.width, 1), e.width, 1};
}

Fragment accumulator_fragment(int rows, int columns, int width) {
  return {rows, columns, 2, width, width == 16 ? 1 : 2};
}

void read_fragment(const Warp& w, const Fragment& f, const Ref* refs, uint64_t* matrix) {
  const uint64_t keep = f.width == 64 ? ~uint64_t{0} : (uint64_t{1} << f.width) - 1;
  for (int p = 0; p < f.places(); ++p) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int e = 0; e < f.per; ++e) {
        const uint64_t word = w.read(refs[p * f.spread + (f.spread == 2 ? e : 0)], f.width == 64, lane);
        matrix[f.row(p, lane) * f.columns + f.column(p, lane, e)] =
            (f.spread == 2 ? word : word >> (e * f.width % 64)) & keep;
      }
    }
  }
}

void write_fragment(Warp& w, const Fragment& f, const Ref* refs, size_t count, const uint64_t* matrix) {
  for (size_t r = 0; r < count; ++r) {
    const int p = static_cast<int>(r) / f.spread % f.places();
    for (int lane = 0; lane < 32; ++lane) {
      const uint64_t* from = matrix + f.row(p, lane) * f.columns + f.column(p, lane, 0);
      if (f.spread == 2) from += r % 2;
      if (f.width == 64) {
        w.out<uint64_t>(refs[r])[lane] = *from;
        continue;
      }
      uint32_t word = 0;
      for (int e = 0; e < (f.spread == 2 ? 1 : f.per); ++e)
        word |= static_cast<uint32_t>(from[e] << (e * f.width));
      w.out<uint32_t>(refs[r])[lane] = word;
    }
  }
}

void multiply(const Product& p, const uint64_t* a, const uint64_t* b, const uint64_t* c, uint64_t* d) {
  if (p.a->kind == E::fused || p.a->kind == E::fp8) return multiply_real(p, a, b, c, d);
  for (int i = 0; i < p.m; ++i) {
    for (int j = 0; j < p.n; ++j) {
      const int at = i * p.n + j;
      d[at] = p.a->kind == E::f64 ? double_element(p, a + i * p.k, b + j * p.k, c[at])
                                  : integer_element(p, a + i * p.k, b + j * p.k, c[at]);
    }
  }
}

}  // namespace tcgen05::vsm

// The arithmetic of mma.sync and wmma on B200, and how fragments lie in registers.
#include <algorithm>
#include <iterator>

#include "model/dot.h"
#include "model/kernels.h"
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

int16_t integer_value(const MatrixElement& e, uint64_t code) {
  const int unused = 64 - e.width;
  return static_cast<int16_t>(e.is_signed ? static_cast<int64_t>(code << unused) >> unused
                                          : static_cast<int64_t>(code));
}

void multiply_integers(const Product& p, const uint64_t* a, const uint64_t* b, const uint64_t* c,
                       uint64_t* d) {
  static thread_local int16_t left[kMaxMatrix], right[kMaxMatrix];
  for (int i = 0; i < p.m * p.k; ++i) left[i] = integer_value(*p.a, a[i]);
  for (int i = 0; i < p.n * p.k; ++i) right[i] = integer_value(*p.b, b[i]);
  for (int at = 0; at < p.m * p.n; ++at) {
    const int16_t *x = left + at / p.n * p.k, *y = right + at % p.n * p.k;
    int32_t products = 0;
    if (p.exclusive) {
      for (int k = 0; k < p.k; ++k) products += x[k] ^ y[k];
    } else {
      for (int k = 0; k < p.k; ++k) products += x[k] * y[k];
    }
    int64_t sum = int64_t{static_cast<int32_t>(c[at])} + products;
    if (p.saturate) sum = std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX);
    d[at] = static_cast<uint32_t>(sum);
  }
}

// Double precision: fused steps in the order of k.
void multiply_doubles(const Product& p, const uint64_t* a, const uint64_t* b, const uint64_t* c,
                      uint64_t* d) {
  for (int at = 0; at < p.m * p.n; ++at) {
    const uint64_t *x = a + at / p.n * p.k, *y = b + at % p.n * p.k;
    double sum = bit_copy<double>(c[at]);
    for (int k = 0; k < p.k; ++k) sum = std::fma(bit_copy<double>(x[k]), bit_copy<double>(y[k]), sum);
    d[at] = bit_copy<uint64_t>(sum);
  }
}

// One product of floating-point matrices for the vector kernels of the model, zeros added up to a K that they
// know.
struct Tile {
  model::Arithmetic arithmetic;
  int rows, columns;
  uint32_t a[model::kMaxK][model::kBlock],
      b[model::kMaxK][model::kBlock];  // codes, rows of A and columns of B inside
  uint32_t d[model::kBlock][model::kBlock];
};

// What a kernel leaves: single elements by the plain statement of the arithmetic.
void redo(void* context, int row, const uint32_t* c, uint32_t lanes) {
  Tile& t = *static_cast<Tile*>(context);
  uint32_t a[model::kMaxK], b[model::kMaxK];
  for (int k = 0; k < t.arithmetic.k; ++k) a[k] = t.a[k][row];
  if (t.columns < model::kBlock) lanes &= (1u << t.columns) - 1;
  for (; lanes; lanes &= lanes - 1) {
    const int lane = __builtin_ctz(lanes);
    for (int k = 0; k < t.arithmetic.k; ++k) b[k] = t.b[k][lane];
    t.d[row][lane] = model::dot(t.arithmetic, a, b, c[lane], nullptr, nullptr);
  }
}

void fill(const uint64_t* matrix, int rows, int k, uint32_t (*codes)[model::kBlock], int padded) {
  for (int i = 0; i < padded; ++i)
    for (int row = 0; row < model::kBlock; ++row)
      codes[i][row] = i < k && row < rows ? static_cast<uint32_t>(matrix[row * k + i]) : 0;
}

void run_tile(Tile& t, bool accumulate) {
  static thread_local model::Block a, b;
  model::decode_block(t.arithmetic.a, t.arithmetic.k, false, false, t.a, a);
  model::decode_block(t.arithmetic.b, t.arithmetic.k, false, false, t.b, b);
  uint32_t* d[model::kBlock];
  for (int i = 0; i < t.rows; ++i) d[i] = t.d[i];
  model::KernelArgs args;
  args.arithmetic = &t.arithmetic;
  args.a = &a;
  args.b = &b;
  args.rows = t.rows;
  args.d = d;
  args.columns = t.columns;
  args.enable_input_d = accumulate;
  args.redo = redo;
  args.context = &t;
  model::run_kernel(args);
}

// f16, bf16, tf32: products and accumulator in one fused sum (numerics.md 1, checked through mma.sync by its
// source B). fp8: emulated by the sum without accumulator and a rounded f32 addition (numerics.md 6.C). Where
// C and D differ in type, and for f16 accumulators of fp8, nothing is published: the f32 sum is rounded once
// more.
void multiply_real(const Product& p, const uint64_t* a, const uint64_t* b, const uint64_t* c, uint64_t* d) {
  static thread_local Tile t;
  const bool apart = p.a->kind == E::fp8, c_half = is_half(*p.c), d_half = is_half(*p.d);
  const bool half = !apart && c_half && d_half;
  t.arithmetic.a = static_cast<Format>(p.a->format);
  t.arithmetic.b = static_cast<Format>(p.b->format);
  t.arithmetic.d = half ? model::Accumulator::f16 : model::Accumulator::f32;
  t.arithmetic.k = 256 / p.a->width;  // what the kernels know: 8, 16, 32
  t.rows = p.m;
  t.columns = p.n;
  fill(a, p.m, p.k, t.a, t.arithmetic.k);
  fill(b, p.n, p.k, t.b, t.arithmetic.k);
  auto addend = [&](int at) {
    const uint32_t code = static_cast<uint32_t>(c[at]);
    return c_half && !half ? f16_to_f32(code) : code;
  };
  for (int i = 0; i < p.m; ++i)
    for (int j = 0; j < p.n; ++j) t.d[i][j] = addend(i * p.n + j);
  run_tile(t, !apart);
  for (int i = 0; i < p.m; ++i) {
    for (int j = 0; j < p.n; ++j) {
      const uint32_t r = apart ? add_f32(t.d[i][j], addend(i * p.n + j)) : t.d[i][j];
      d[i * p.n + j] = d_half && !half ? f32_to_f16(r) : r;
    }
  }
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
    uint64_t* to = matrix + f.origin(p);
    for (int e = 0; e < f.per; ++e) {
      const Ref r = refs[p * f.spread + (f.spread == 2 ? e : 0)];
      const int shift = f.spread == 2 ? 0 : e * f.width % 64;
      for (int lane = 0; lane < 32; ++lane)
        to[f.step(lane) + e] = w.read(r, f.width == 64, lane) >> shift & keep;
    }
  }
}

void write_fragment(Warp& w, const Fragment& f, const Ref* refs, size_t count, const uint64_t* matrix) {
  for (size_t r = 0; r < count; ++r) {
    const uint64_t* from =
        matrix + f.origin(static_cast<int>(r) / f.spread % f.places()) + (f.spread == 2 ? r % 2 : 0);
    const int elements = f.spread == 2 ? 1 : f.per;
    for (int lane = 0; lane < 32; ++lane) {
      const uint64_t* x = from + f.step(lane);
      if (f.width == 64) {
        w.out<uint64_t>(refs[r])[lane] = *x;
        continue;
      }
      uint32_t word = 0;
      for (int e = 0; e < elements; ++e) word |= static_cast<uint32_t>(x[e] << (e * f.width));
      w.out<uint32_t>(refs[r])[lane] = word;
    }
  }
}

void multiply(const Product& p, const uint64_t* a, const uint64_t* b, const uint64_t* c, uint64_t* d) {
  switch (p.a->kind) {
    case E::fused:
    case E::fp8:
      return multiply_real(p, a, b, c, d);
    case E::integer:
    case E::bits:
      return multiply_integers(p, a, b, c, d);
    case E::f64:
      return multiply_doubles(p, a, b, c, d);
  }
}

}  // namespace tcgen05::vsm

// wmma.load, wmma.store and wmma.mma (PTX ISA 9.7.14.3). PTX leaves open which thread holds which element;
// here fragments lie as those of mma.sync, and f16 operands repeat their four (or two) registers in eight.
#include <algorithm>
#include <iterator>
#include <memory>

#include "vsm/checker.h"
#include "vsm/ops/address.h"
#include "vsm/ops/common.h"
#include "vsm/ops/matrix.h"

namespace tcgen05::vsm {
namespace {

using E = MatrixElement;

struct Shape {
  std::string_view name;
  int m, n, k;
  E::Class kind;
  int width;  // of A's and B's elements
};

constexpr Shape kShapes[] = {
    {"m16n16k16", 16, 16, 16, E::fused, 16},  {"m32n8k16", 32, 8, 16, E::fused, 16},
    {"m8n32k16", 8, 32, 16, E::fused, 16},    {"m16n16k8", 16, 16, 8, E::fused, 32},
    {"m16n16k16", 16, 16, 16, E::integer, 8}, {"m32n8k16", 32, 8, 16, E::integer, 8},
    {"m8n32k16", 8, 32, 16, E::integer, 8},   {"m8n8k32", 8, 8, 32, E::integer, 4},
    {"m8n8k128", 8, 8, 128, E::bits, 1},      {"m8n8k4", 8, 8, 4, E::f64, 64},
};

const Shape& find_shape(Decoder& d, std::string_view name, const E& operand) {
  for (const Shape& s : kShapes)
    if (s.name == name && s.kind == operand.kind && s.width == operand.width) return s;
  d.fail("shape ." + std::string(name) + " does not exist for ." + std::string(operand.name));
}

// Accumulators fit a shape by its sizes alone.
const Shape& find_accumulator_shape(Decoder& d, std::string_view name) {
  for (const Shape& s : kShapes)
    if (s.name == name) return s;
  d.fail("unknown shape ." + std::string(name));
}

const E& take_element(Decoder& d, const char* what) {
  const std::string_view name = d.take_next();
  const E* e = find_matrix_element(name);
  if (!e) d.fail("'." + std::string(name) + "' is no element type of " + what);
  return *e;
}

size_t registers_of(const Fragment& f, const E& e, bool accumulator) {
  return !accumulator && e.name == "f16" ? 8 : static_cast<size_t>(f.registers());
}

// ---- load and store ----

// Elements of the fragment's matrix at base + (row * row_step + column * column_step) elements; one of the
// two steps is the stride. Elements below a byte have column_step 1.
struct Transfer {
  Fragment fragment;
  bool by_row;     // rows of the fragment's matrix are contiguous
  uint32_t tight;  // the stride if none is given
  Ref stride = kNoRef;
  Space space;
  bool wide;
};

// Visits (index into the matrix, address) of every element that is a whole number of bytes, or of every byte
// of smaller ones.
template <class Fn>
void visit(Warp& w, const Instr& in, const Transfer& t, Fn&& fn) {
  uint64_t base[32];
  lane_addresses(w, in.src[0], t.wide, in.imm, ~Mask{0}, base);
  const uint64_t stride = t.stride == kNoRef ? t.tight : w.in<uint32_t>(t.stride)[0];
  const int unit = std::max(8 / t.fragment.width, 1);  // elements per access
  for (int r = 0; r < t.fragment.rows; ++r) {
    for (int c = 0; c < t.fragment.columns; c += unit) {
      const uint64_t element = t.by_row ? static_cast<uint64_t>(r) * stride + static_cast<uint64_t>(c)
                                        : static_cast<uint64_t>(c) * stride + static_cast<uint64_t>(r);
      fn(r * t.fragment.columns + c, base[0] + element * static_cast<uint64_t>(t.fragment.width) / 8, unit);
    }
  }
}

Flow load(Warp& w, const Instr& in, Mask m) {
  need_whole_warp(w, m);
  const auto& t = *static_cast<const Transfer*>(in.aux);
  static thread_local uint64_t matrix[kMaxMatrix];
  const uint32_t bytes = static_cast<uint32_t>(std::max(t.fragment.width / 8, 1));
  visit(w, in, t, [&](int at, uint64_t address, int unit) {
    uint64_t v = 0;
    std::memcpy(&v, w.at(t.space, address, bytes, bytes, 0, false), bytes);
    w.cta->cluster->traffic.count(place_of(t.space, address), false, bytes);
    if (w.checker) w.checker->touch(w, t.space, address, bytes, 0, Touch::load);
    for (int e = 0; e < unit; ++e)
      matrix[at + e] = unit == 1 ? v : v >> (e * t.fragment.width) & ((1u << t.fragment.width) - 1);
  });
  write_fragment(w, t.fragment, &w.program->refs[in.list], in.list_size, matrix);
  return Flow::next;
}

Flow store(Warp& w, const Instr& in, Mask m) {
  need_whole_warp(w, m);
  const auto& t = *static_cast<const Transfer*>(in.aux);
  uint64_t matrix[32 * 32];
  read_fragment(w, t.fragment, &w.program->refs[in.list], matrix);
  const uint32_t bytes = static_cast<uint32_t>(t.fragment.width / 8);
  visit(w, in, t, [&](int at, uint64_t address, int) {
    std::memcpy(w.at(t.space, address, bytes, bytes, 0, true), &matrix[at], bytes);
    w.cta->cluster->traffic.count(place_of(t.space, address), true, bytes);
    if (w.checker) w.checker->touch(w, t.space, address, bytes, 0, Touch::store);
  });
  ++w.cta->cluster->progress;
  return Flow::next;
}

void begin(Decoder& d) {
  d.need("sync");
  d.need("aligned");
  d.in.aligned = true;
}

// `role`: 0 A, 1 B (as columns x K), 2 an accumulator.
void decode_transfer(Decoder& d, int role, size_t address_at, size_t list_at) {
  begin(d);
  const bool row = d.need_any({"col", "row"}) == 1;
  const std::string_view name = d.take_prefix("m");
  const Space space = take_space(d);
  if (space != Space::generic && space != Space::global && space != Space::shared)
    d.fail("only global and shared memory are allowed");
  const E& e = take_element(d, role == 2 ? "accumulators" : "operands");
  auto t = std::make_shared<Transfer>();
  const Shape& s = role == 2 ? find_accumulator_shape(d, name) : find_shape(d, name, e);
  if (role == 2 && e.name != "f16" && e.name != "f32" && e.name != "s32" && e.name != "f64")
    d.fail("accumulators are .f16, .f32, .s32 or .f64");
  t->fragment = role == 0   ? operand_fragment(s.m, s.k, e)
                : role == 1 ? operand_fragment(s.n, s.k, e)
                            : accumulator_fragment(s.m, s.n, e.width);
  t->by_row = row != (role == 1);
  if (e.width < 8 && !t->by_row) d.fail("operands below 8 bits are A in .row and B in .col");
  t->tight = static_cast<uint32_t>(t->by_row ? t->fragment.columns : t->fragment.rows);
  d.need_operands(2, 3);
  if (d.operands() == 3) t->stride = d.src(d.operand(2), Type::u32);
  d.in.src[0] = d.address(d.operand(address_at), &d.in.imm, &t->wide);
  t->space = space_of(d, d.operand(address_at), space);
  std::vector<Ref> list;
  append_registers(d, d.operand(list_at), e.register_type, address_at == 1,
                   registers_of(t->fragment, e, role == 2), "the fragment", list);
  d.set_list(list);
  d.own(t);
}

// ---- the product ----

struct Multiply {
  Product product;
  Fragment a, b, c, d;
  size_t a_registers, b_registers;
};

Flow mma(Warp& w, const Instr& in, Mask m) {
  need_whole_warp(w, m);
  const auto& x = *static_cast<const Multiply*>(in.aux);
  const Ref* refs = &w.program->refs[in.list];
  static thread_local uint64_t a[kMaxMatrix], b[kMaxMatrix], c[32 * 32], d[32 * 32];
  read_fragment(w, x.a, refs, a);
  read_fragment(w, x.b, refs + x.a_registers, b);
  refs += x.a_registers + x.b_registers;
  read_fragment(w, x.c, refs, c);
  multiply(x.product, a, b, c, d);
  write_fragment(w, x.d, refs + x.c.registers(), static_cast<size_t>(x.d.registers()), d);
  return Flow::next;
}

// The types behind the shape: D, C for f16 operands; D, A, B, C for all others.
void take_types(Decoder& d, Product& p) {
  p.d = &take_element(d, "D");
  const E& second = take_element(d, "A or C");
  if (second.name == "f16" || second.name == "f32") {
    p.c = &second;
    p.a = p.b = find_matrix_element("f16");
    if (p.d->name != "f16" && p.d->name != "f32") d.fail("D must be .f16 or .f32 for .f16 operands");
    return;
  }
  p.a = &second;
  p.b = &take_element(d, "B");
  p.c = &take_element(d, "C");
  const std::string_view accumulator = p.a->kind == E::fused ? "f32" : p.a->kind == E::f64 ? "f64" : "s32";
  if (p.a != p.b || p.a->kind == E::fp8)
    d.fail("A and B cannot be ." + std::string(p.a->name) + " and ." + std::string(p.b->name));
  if (p.c->name != accumulator || p.d->name != accumulator)
    d.fail("C and D must be ." + std::string(accumulator));
}

}  // namespace

void decode_wmma_load(Decoder& d) {
  decode_transfer(d, d.need_any({"a", "b", "c"}), 1, 0);
  d.in.fn = load;
}

void decode_wmma_store(Decoder& d) {
  d.need("d");
  decode_transfer(d, 2, 0, 1);
  d.in.fn = store;
}

void decode_wmma_mma(Decoder& d) {
  begin(d);
  auto x = std::make_shared<Multiply>();
  Product& p = x->product;
  const int bit_op = d.take_any({"and", "xor"});
  p.exclusive = bit_op == 1;
  const bool popc = d.take("popc");
  // The layouts of A and B were given when they were loaded; fragments do not depend on them.
  for (int i = 0; i < 2; ++i) d.need_any({"row", "col"});
  const std::string_view name = d.take_prefix("m");
  d.take("rn");
  p.saturate = d.take("satfinite");
  take_types(d, p);
  if ((p.a->kind == E::bits) != (bit_op >= 0 && popc)) d.fail(".and.popc or .xor.popc belongs to .b1");
  if (p.saturate && p.a->kind != E::integer) d.fail(".satfinite is for integers only");
  const Shape& s = find_shape(d, name, *p.a);
  p.m = s.m;
  p.n = s.n;
  p.k = s.k;
  x->a = operand_fragment(p.m, p.k, *p.a);
  x->b = operand_fragment(p.n, p.k, *p.b);
  x->c = accumulator_fragment(p.m, p.n, p.c->width);
  x->d = accumulator_fragment(p.m, p.n, p.d->width);
  x->a_registers = registers_of(x->a, *p.a, false);
  x->b_registers = registers_of(x->b, *p.b, false);
  d.need_operands(4);
  std::vector<Ref> list;
  append_registers(d, d.operand(1), p.a->register_type, false, x->a_registers, "A", list);
  append_registers(d, d.operand(2), p.b->register_type, false, x->b_registers, "B", list);
  append_registers(d, d.operand(3), p.c->register_type, false, static_cast<size_t>(x->c.registers()), "C",
                   list);
  append_registers(d, d.operand(0), p.d->register_type, true, static_cast<size_t>(x->d.registers()), "D",
                   list);
  d.set_list(list);
  d.own(x);
  d.in.fn = mma;
}

}  // namespace tcgen05::vsm

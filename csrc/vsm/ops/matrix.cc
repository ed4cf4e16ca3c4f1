// mma.sync, and the rows of the warp-level matrix instructions (PTX ISA 9.7.14.5).
#include "vsm/ops/matrix.h"

#include <iterator>
#include <memory>

#include "vsm/ops/common.h"
#include "vsm/ops/families.h"

namespace tcgen05::vsm {

void need_whole_warp(const Warp& w, Mask m) {
  if (m == ~Mask{0}) return;
  throw Fault{"this instruction needs all 32 threads of the warp, " + std::to_string(count_lanes(m)) +
                  " execute it" + (w.full == ~Mask{0} ? "" : " (the CTA's size is no multiple of 32)"),
              first_lane(m)};
}

void append_registers(Decoder& d, const Operand& x, Type t, bool writes, size_t count, const char* what,
                      std::vector<Ref>& list) {
  const std::vector<Ref> refs = d.refs(x, t, writes);
  if (refs.size() != count)
    d.fail(std::string(what) + " needs " + std::to_string(count) + " registers, found " +
           std::to_string(refs.size()));
  list.insert(list.end(), refs.begin(), refs.end());
}

namespace {

// One row per element class and shape.
struct Shape {
  std::string_view name;
  MatrixElement::Class kind;
  int width;  // of A's and B's elements
  int m, n, k;
};

using E = MatrixElement;
constexpr Shape kShapes[] = {
    {"m16n8k8", E::fused, 16, 16, 8, 8},    {"m16n8k16", E::fused, 16, 16, 8, 16},
    {"m16n8k4", E::fused, 32, 16, 8, 4},    {"m16n8k8", E::fused, 32, 16, 8, 8},
    {"m16n8k16", E::fp8, 8, 16, 8, 16},     {"m16n8k32", E::fp8, 8, 16, 8, 32},
    {"m8n8k16", E::integer, 8, 8, 8, 16},   {"m16n8k16", E::integer, 8, 16, 8, 16},
    {"m16n8k32", E::integer, 8, 16, 8, 32}, {"m8n8k32", E::integer, 4, 8, 8, 32},
    {"m16n8k32", E::integer, 4, 16, 8, 32}, {"m16n8k64", E::integer, 4, 16, 8, 64},
    {"m8n8k128", E::bits, 1, 8, 8, 128},    {"m16n8k128", E::bits, 1, 16, 8, 128},
    {"m16n8k256", E::bits, 1, 16, 8, 256},  {"m8n8k4", E::f64, 64, 8, 8, 4},
    {"m16n8k4", E::f64, 64, 16, 8, 4},      {"m16n8k8", E::f64, 64, 16, 8, 8},
    {"m16n8k16", E::f64, 64, 16, 8, 16},
};

struct Mma {
  Product product;
  Fragment a, b, c, d;
};

// The list holds the registers of A, B, C, D.
Flow mma(Warp& w, const Instr& in, Mask m) {
  need_whole_warp(w, m);
  const auto& x = *static_cast<const Mma*>(in.aux);
  const Ref* refs = &w.program->refs[in.list];
  static thread_local uint64_t a[kMaxMatrix], b[kMaxMatrix], c[32 * 32], d[32 * 32];
  read_fragment(w, x.a, refs, a);
  refs += x.a.registers();
  read_fragment(w, x.b, refs, b);
  refs += x.b.registers();
  read_fragment(w, x.c, refs, c);
  refs += x.c.registers();
  multiply(x.product, a, b, c, d);
  write_fragment(w, x.d, refs, static_cast<size_t>(x.d.registers()), d);
  return Flow::next;
}

const MatrixElement& element(Decoder& d, const char* what) {
  const std::string_view name = d.take_next();
  const MatrixElement* e = find_matrix_element(name);
  if (!e && (name == "e2m1" || name == "e2m3" || name == "e3m2"))
    d.fail("mma.sync with ." + std::string(name) + " exists on sm_120 only; sm_100 has tcgen05.mma");
  if (!e) d.fail("'." + std::string(name) + "' is no element type of " + what);
  return *e;
}

void check_types(Decoder& d, const Product& p) {
  auto is = [](const MatrixElement* e, std::string_view name) { return e->name == name; };
  const bool integers = p.a->kind == E::integer || p.a->kind == E::bits;
  const bool same = p.a == p.b || (p.a->kind == E::fp8 && p.b->kind == E::fp8) ||
                    (p.a->kind == E::integer && p.b->kind == E::integer && p.a->width == p.b->width);
  if (!same || p.a->width == 32) {
    if (!same || !is(p.a, "tf32"))
      d.fail("A and B cannot be ." + std::string(p.a->name) + " and ." + std::string(p.b->name));
  }
  const bool halves = (is(p.a, "f16") || p.a->kind == E::fp8) && is(p.c, "f16") && is(p.d, "f16");
  const bool fits = integers              ? is(p.c, "s32") && is(p.d, "s32")
                    : p.a->kind == E::f64 ? is(p.c, "f64") && is(p.d, "f64")
                                          : halves || (is(p.c, "f32") && is(p.d, "f32"));
  if (!fits)
    d.fail("accumulators cannot be ." + std::string(p.c->name) + " and ." + std::string(p.d->name) +
           " for ." + std::string(p.a->name));
  if (p.saturate && p.a->kind != E::integer) d.fail(".satfinite is for integers only");
}

void decode_mma(Decoder& d) {
  d.need("sync");
  d.need("aligned");
  d.in.aligned = true;
  d.take("kind::f8f6f4");  // with fp8 types it is the same instruction
  if (!d.take_prefix("kind::").empty() || d.take("block_scale"))
    d.fail("block-scaled mma.sync exists on sm_120 only; sm_100 has tcgen05.mma");
  const std::string_view shape = d.take_prefix("m");
  if (!d.take("row") || !d.take("col")) d.fail("needs the layouts .row.col");
  auto x = std::make_shared<Mma>();
  Product& p = x->product;
  p.saturate = d.take("satfinite");
  const int bit_op = d.take_any({"and", "xor"});
  p.exclusive = bit_op == 1;
  const bool popc = d.take("popc");
  d.take("rn");
  p.d = &element(d, "D");
  p.a = &element(d, "A");
  p.b = &element(d, "B");
  p.c = &element(d, "C");
  const Shape* s = std::find_if(std::begin(kShapes), std::end(kShapes), [&](const Shape& r) {
    return r.name == shape && r.kind == p.a->kind && r.width == p.a->width;
  });
  if (s == std::end(kShapes)) {
    std::string list;
    for (const Shape& r : kShapes)
      if (r.kind == p.a->kind && r.width == p.a->width)
        list += (list.empty() ? "." : ", .") + std::string(r.name);
    d.fail("shape ." + std::string(shape) + " does not exist for ." + std::string(p.a->name) +
           "; allowed: " + list);
  }
  check_types(d, p);
  if ((p.a->kind == E::bits) != (bit_op >= 0 && popc)) d.fail(".and.popc or .xor.popc belongs to .b1");
  p.m = s->m;
  p.n = s->n;
  p.k = s->k;
  x->a = operand_fragment(p.m, p.k, *p.a);
  x->b = operand_fragment(p.n, p.k, *p.b);
  x->c = accumulator_fragment(p.m, p.n, p.c->width);
  x->d = accumulator_fragment(p.m, p.n, p.d->width);
  d.need_operands(4);
  std::vector<Ref> list;
  auto registers = [&](size_t at, const Fragment& f, const MatrixElement& e, bool writes, const char* what) {
    append_registers(d, d.operand(at), e.register_type, writes, static_cast<size_t>(f.registers()), what,
                     list);
  };
  registers(1, x->a, *p.a, false, "A");
  registers(2, x->b, *p.b, false, "B");
  registers(3, x->c, *p.c, false, "C");
  registers(0, x->d, *p.d, true, "D");
  d.set_list(list);
  d.own(x);
  d.in.fn = mma;
}

constexpr Entry kEntries[] = {
    {"mma", decode_mma,
     ".sync f16 bf16 tf32 e4m3 e5m2 s8 u8 s4 u4 b1 f64; m16n8 and m8n8 shapes, not m8n8k4 of f16"},
    {"mma.sp", refused, "sparse warp-level products"},
    {"mma.sp::ordered_metadata", refused, "sparse warp-level products"},
    {"wmma.load", decode_wmma_load, ".a .b .c; f16 bf16 tf32 s8 u8 s4 u4 b1 f64"},
    {"wmma.store", decode_wmma_store, ".d; f16 f32 s32 f64"},
    {"wmma.mma", decode_wmma_mma, "f16 bf16 tf32 s8 u8 s4 u4 b1 f64"},
    {"ldmatrix", decode_ldmatrix,
     ".m8n8 {.trans} .b16; .m16n16.trans .b8 and 6 and 4 bits; .m8n16 6 and 4 bits"},
    {"stmatrix", decode_stmatrix, ".m8n8 {.trans} .b16; .m16n8.trans .b8"},
    {"movmatrix", decode_movmatrix, ".m8n8.trans.b16"},
};

}  // namespace

Family matrix_family() { return {"warp-level matrices", kEntries, std::size(kEntries)}; }

}  // namespace tcgen05::vsm

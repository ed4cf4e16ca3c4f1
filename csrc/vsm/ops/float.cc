// Floating-point arithmetic, rounded once in the mode that the instruction names (PTX ISA 9.7.3-9.7.5).
// Single precision returns the canonical NaN 0x7fffffff, halves 0x7fff.
#include "vsm/ops/float.h"

#include <iterator>

#include "vsm/ops/families.h"

namespace tcgen05::vsm {
namespace {

enum class Op { add, mul, fma };

// An exact zero sum is -0 when rounding down, unless both terms are +0 (IEEE 754, 6.3).
double zero_sum(double sum, double a, double b, Rounding mode) {
  return mode == Rounding::down && sum == 0 && (std::signbit(a) || std::signbit(b)) ? -0.0 : sum;
}

// Single precision and below: the operands are doubles, the result is exact or rounded to odd.
template <Op op>
double narrow(double a, double b, double c, Rounding mode) {
  if constexpr (op == Op::mul) return a * b;
  if constexpr (op == Op::fma) a *= b;
  const double last = op == Op::fma ? c : b;
  return zero_sum(sum_to_odd(a, last), a, last, mode);
}

// Double precision, rounded in the mode.
template <Op op>
double wide(double a, double b, double c, Rounding mode) {
  const double r = op == Op::add ? a + b : op == Op::mul ? a * b : std::fma(a, b, c);
  if (mode == Rounding::nearest || r != r) return r;
  const bool finite = std::isfinite(a) && std::isfinite(b) && (op != Op::fma || std::isfinite(c));
  if (!finite) return r;
  if (op == Op::add) {
    c = b;
    b = 1;
  } else if (op == Op::mul) {
    c = 0;
  }
  const int error = std::isinf(r) ? (r > 0 ? -1 : 1) : error_sign(a, b, c, r);
  if (error == 0) return op == Op::mul ? r : zero_sum(r, a * b, c, mode);
  return direct(r, error, mode);
}

template <class F, int count, Op op>
Flow arithmetic(Warp& w, const Instr& in, Mask m) {
  using S = packed_slot_t<F, count>;
  constexpr int last = op == Op::fma ? 2 : 1;
  auto* d = w.out<S>(in.dst);
  auto *a = w.in<S>(in.src[0]), *b = w.in<S>(in.src[1]), *c = w.in<S>(in.src[last]);
  const auto mode = static_cast<Rounding>(in.u[kModeField]);
  const uint8_t flags = in.u[kFloatFlags];
  const bool ftz = flags & kFtz;
  for_lanes(m, [&](int i) {
    S r = 0;
    for (int k = 0; k < count; ++k) {
      const double x = load_element<F>(a[i], k, ftz);
      double y = load_element<F>(b[i], k, ftz), z = load_element<F>(c[i], k, ftz);
      if (flags & kNegateLast) (op == Op::fma ? z : y) *= -1;
      const double v = F::bits == 64 ? wide<op>(x, y, z, mode) : narrow<op>(x, y, z, mode);
      r |= static_cast<S>(store_element<F>(v, mode, flags) << (k * F::bits % 64));
    }
    d[i] = r;
  });
  return Flow::next;
}

// The usual case, f32 to nearest: the processor's own operations, and for fma a double rounded to odd. A slot
// of f32x2 is a row of twice as many f32.
template <int count, Op op, bool kFlush>
Flow single_nearest(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<uint32_t>(in.dst);
  auto *a = w.in<uint32_t>(in.src[0]), *b = w.in<uint32_t>(in.src[1]);
  auto* c = w.in<uint32_t>(in.src[op == Op::fma ? 2 : 1]);
  const uint32_t negate = in.u[kFloatFlags] & kNegateLast ? 0x80000000 : 0;
  auto load = [](uint32_t x) { return bit_copy<float>(kFlush && !(x & 0x7f800000) ? x & 0x80000000 : x); };
  for_lanes(m, [&](int lane) {
    for (int i = count * lane; i < count * lane + count; ++i) {
      float r;
      if constexpr (op == Op::add) r = load(a[i]) + load(b[i] ^ negate);
      if constexpr (op == Op::mul) r = load(a[i]) * load(b[i]);
      if constexpr (op == Op::fma)
        r = static_cast<float>(product_sum_to_odd(load(a[i]), load(b[i]), load(c[i])));
      const uint32_t x = bit_copy<uint32_t>(r);
      const uint32_t kept = kFlush && !(x & 0x7f800000) ? x & 0x80000000 : x;
      d[i] = r == r ? kept : 0x7fffffff;
    }
  });
  return Flow::next;
}

// The same for halves. A float holds more than twice their digits, so rounding twice does no harm, but for
// fma, which is rounded to odd before.
template <class F, int count, Op op>
Flow half_operation(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<uint32_t>(in.dst);
  auto *a = w.in<uint32_t>(in.src[0]), *b = w.in<uint32_t>(in.src[1]);
  auto* c = w.in<uint32_t>(in.src[op == Op::fma ? 2 : 1]);
  const uint32_t negate = in.u[kFloatFlags] & kNegateLast ? 0x8000 : 0;
  for_lanes(m, [&](int i) {
    uint32_t r = 0;
    for (int shift = 0; shift < 16 * count; shift += 16) {
      auto load = [&](uint32_t x) { return half_value<F>(x >> shift & 0xffff); };
      uint32_t x;
      if constexpr (op == Op::add) x = bit_copy<uint32_t>(load(a[i]) + load(b[i] ^ negate << shift));
      if constexpr (op == Op::mul) x = bit_copy<uint32_t>(load(a[i]) * load(b[i]));
      if constexpr (op == Op::fma) x = float_to_odd(product_sum_to_odd(load(a[i]), load(b[i]), load(c[i])));
      r |= half_nearest<F>(x) << shift;
    }
    d[i] = r;
  });
  return Flow::next;
}

template <Op op>
Handler usual_case(Type t, uint8_t flags) {
  const bool ftz = flags & kFtz, plain = !(flags & ~kNegateLast);
  if (!(flags & ~(kNegateLast | kFtz))) {
    if (t == Type::f32) return ftz ? single_nearest<1, op, true> : single_nearest<1, op, false>;
    if (t == Type::f32x2) return ftz ? single_nearest<2, op, true> : single_nearest<2, op, false>;
  }
  if (plain && t == Type::f16) return half_operation<F16, 1, op>;
  if (plain && t == Type::f16x2) return half_operation<F16, 2, op>;
  if (plain && t == Type::bf16) return half_operation<BF16, 1, op>;
  if (plain && t == Type::bf16x2) return half_operation<BF16, 2, op>;
  return nullptr;
}

// f32 = f16 or bf16 (times f16 or bf16) plus f32 (PTX ISA 9.7.5).
template <class A, Op op>
Flow mixed(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<uint32_t>(in.dst);
  auto *a = w.in<uint32_t>(in.src[0]), *b = w.in<uint32_t>(in.src[1]);
  auto* c = w.in<uint32_t>(in.src[op == Op::fma ? 2 : 1]);
  const auto mode = static_cast<Rounding>(in.u[kModeField]);
  const uint8_t flags = in.u[kFloatFlags];
  for_lanes(m, [&](int i) {
    double x = decode_number<A>(a[i]), z = decode_number<F32>(c[i]);
    if (flags & kNegateLast) z = -z;
    if (op == Op::fma) x *= decode_number<A>(b[i]);
    d[i] = static_cast<uint32_t>(store_element<F32>(narrow<Op::add>(x, z, 0, mode), mode, flags));
  });
  return Flow::next;
}

// ---- division and roots ----

enum class Root { div, rcp, sqrt };

template <Root op>
double narrow_root(double a, double b, Rounding mode, bool approx) {
  if constexpr (op == Root::sqrt) {
    return root_to_odd(a);
  } else {
    // div.approx multiplies by a reciprocal that underflows above 2^126.
    if (approx && op == Root::div && std::fabs(b) > 0x1p126 && std::isfinite(b))
      return a * std::copysign(0.0, b);
    (void)mode;
    return quotient_to_odd(a, b);
  }
}

template <Root op>
double wide_root(double a, double b, Rounding mode) {
  const double r = op == Root::sqrt ? std::sqrt(a) : a / b;
  if (mode == Rounding::nearest || r != r || !std::isfinite(a) ||
      (op != Root::sqrt && (!std::isfinite(b) || b == 0)))
    return r;
  if (op == Root::sqrt) return direct(r, error_sign(-r, r, a, 0), mode);
  if (std::isinf(r)) return direct(r, r > 0 ? -1 : 1, mode);
  const int rest = error_sign(-r, b, a, 0);
  return direct(r, b < 0 ? -rest : rest, mode);
}

template <class F, Root op>
Flow root(Warp& w, const Instr& in, Mask m) {
  using S = packed_slot_t<F, 1>;
  auto* d = w.out<S>(in.dst);
  auto *a = w.in<S>(in.src[0]), *b = w.in<S>(in.src[op == Root::div ? 1 : 0]);
  const auto mode = static_cast<Rounding>(in.u[kModeField]);
  const uint8_t flags = in.u[kFloatFlags];
  for_lanes(m, [&](int i) {
    const double x = op == Root::rcp ? 1.0 : load_element<F>(a[i], 0, flags & kFtz),
                 y = load_element<F>(b[i], 0, flags & kFtz);
    const double v = F::bits == 64 ? wide_root<op>(x, y, mode) : narrow_root<op>(x, y, mode, flags & kApprox);
    d[i] = static_cast<S>(store_element<F>(v, mode, flags));
  });
  return Flow::next;
}

// ---- decoding ----

int take_rounding(Decoder& d) {
  const int r = d.take_any({"rn", "rz", "rm", "rp"});
  d.in.u[kModeField] = static_cast<uint8_t>(r < 0 ? 0 : r);
  return r;
}

void take_flags(Decoder& d, Type t, bool relu) {
  uint8_t& flags = d.in.u[kFloatFlags];
  if (d.take("ftz")) flags |= kFtz;
  if (d.take("sat")) flags |= kSat;
  if (d.take("relu")) flags |= kReluResult;
  const bool half = is_half(t), f16 = is_f16(t), f32 = t == Type::f32;
  if ((flags & kFtz) && !f32 && !f16 && t != Type::f32x2) d.fail(".ftz is for .f32, .f32x2 and .f16 only");
  if ((flags & kSat) && !f32 && !f16) d.fail(".sat is for .f32 and .f16 only");
  if ((flags & kReluResult) && (!relu || !half)) d.fail(".relu is for fma on 16-bit types only");
  if (half && d.in.u[kModeField]) d.fail("16-bit types round with .rn only");
}

template <Op op>
void decode_mixed(Decoder& d, Type a) {
  if (a != Type::f16 && a != Type::bf16)
    d.fail("the sources may be .f16 or .bf16, found ." + std::string(name_of(a)));
  if (op == Op::mul) d.fail("mul has no form with sources of another type");
  if (d.in.u[kFloatFlags] & kFtz) d.fail(".ftz is not allowed with sources of another type");
  const size_t n = op == Op::fma ? 3 : 2;
  d.need_operands(n + 1);
  d.in.dst = d.dst(d.operand(0), Type::f32);
  for (size_t i = 0; i + 1 < n; ++i) d.in.src[i] = d.src(d.operand(i + 1), Type::b16);
  d.in.src[n - 1] = d.src(d.operand(n), Type::f32);
  if (op == Op::fma)
    d.in.fn = a == Type::f16 ? mixed<F16, Op::fma> : mixed<BF16, Op::fma>;
  else
    d.in.fn = a == Type::f16 ? mixed<F16, Op::add> : mixed<BF16, Op::add>;
}

template <Op op>
void decode_arithmetic(Decoder& d, bool rounding_needed, bool negate) {
  const Type t = d.type();
  const bool rounded = take_rounding(d) >= 0;
  if (rounding_needed && !rounded) d.fail("needs a rounding modifier: .rn, .rz, .rm, .rp");
  take_flags(d, t, op == Op::fma);
  if (negate) d.in.u[kFloatFlags] |= kNegateLast;
  Type source;
  if (d.take_type(&source)) {
    if (t != Type::f32) d.fail("only .f32 results have sources of another type");
    return decode_mixed<op>(d, source);
  }
  float_operands(d, t, op == Op::fma ? 3 : 2);
  if (!d.in.u[kModeField]) d.in.fn = usual_case<op>(t, d.in.u[kFloatFlags]);
  if (d.in.fn) return;
  set_handler(d,
              with_elements(t,
                            [](auto e) -> Handler {
                              using E = decltype(e);
                              return arithmetic<typename E::F, E::count, op>;
                            }),
              t);
}

template <Root op>
void decode_root(Decoder& d) {
  if (op == Root::rcp && decode_approximate_rcp64(d)) return;
  const bool rounded = take_rounding(d) >= 0;
  const bool approx = d.take("approx"), full = op == Root::div && d.take("full");
  const Type t = d.type_of({Type::f32, Type::f64});
  if (rounded + approx + full != 1)
    d.fail(std::string("needs one of .rn, .rz, .rm, .rp") +
           (t == Type::f32 ? op == Root::div ? ", .approx, .full" : ", .approx" : ""));
  if (t == Type::f64 && !rounded) d.fail("double precision needs .rn, .rz, .rm or .rp");
  take_flags(d, t, false);
  if (d.in.u[kFloatFlags] & kSat) d.fail(".sat is not allowed on " + std::string(d.root()));
  if (approx) d.in.u[kFloatFlags] |= kApprox;
  float_operands(d, t, op == Root::div ? 2 : 1);
  d.in.fn = t == Type::f32 ? root<F32, op> : root<F64, op>;
}

void decode_fma(Decoder& d) { decode_arithmetic<Op::fma>(d, true, false); }

constexpr Entry kEntries[] = {
    {"fma", decode_fma,
     ".rn .rz .rm .rp {.ftz .sat .relu} f32 f64 f32x2 f16 bf16 f16x2 bf16x2; f32 with f16 or bf16 sources"},
    {"rcp", decode_root<Root::rcp>, ".rn .rz .rm .rp .approx {.ftz} f32 f64"},
    {"sqrt", decode_root<Root::sqrt>, ".rn .rz .rm .rp .approx {.ftz} f32 f64"},
    {"rsqrt", decode_approximate, ".approx {.ftz} f32 f64"},
    {"sin", decode_approximate, ".approx {.ftz} f32"},
    {"cos", decode_approximate, ".approx {.ftz} f32"},
    {"lg2", decode_approximate, ".approx {.ftz} f32"},
    {"ex2", decode_approximate, ".approx {.ftz} f32 f16 f16x2 bf16 bf16x2"},
    {"tanh", decode_approximate, ".approx f32 f16 f16x2 bf16 bf16x2"},
    {"copysign", decode_copysign, "f32 f64"},
};

}  // namespace

void decode_float_arithmetic(Decoder& d, Type t) {
  const std::string_view op = d.root();
  if (op == "add" || op == "sub") return decode_arithmetic<Op::add>(d, false, op == "sub");
  if (op == "mul") return decode_arithmetic<Op::mul>(d, false, false);
  if (op == "mad" && (t == Type::f32 || t == Type::f64))
    return decode_arithmetic<Op::fma>(d, true, false);  // fused
  if (op == "div") return decode_root<Root::div>(d);
  if (op == "neg" || op == "abs") return decode_sign(d, t);
  if (op == "min" || op == "max") return decode_minimum(d, t);
  d.fail("'" + std::string(op) + "' is not defined on ." + std::string(name_of(t)));
}

Family float_family() { return {"floating point", kEntries, std::size(kEntries), true}; }

}  // namespace tcgen05::vsm

// The approximate functions (PTX ISA 9.7.3.13-9.7.3.22, 9.7.4.9-10): computed in double precision and rounded
// once, so within every documented error. The chip's own last bits are not documented.
#include "vsm/ops/float.h"

namespace tcgen05::vsm {
namespace {

double ex2(double v) { return std::exp2(v); }
double lg2(double v) { return std::log2(v); }
double sine(double v) { return std::sin(v); }
double cosine(double v) { return std::cos(v); }
double tangent(double v) { return std::tanh(v); }
double inverse_root(double v) { return 1.0 / std::sqrt(v); }

template <class F, int count, double (*kFunction)(double)>
Flow approximate(Warp& w, const Instr& in, Mask m) {
  using S = packed_slot_t<F, count>;
  auto* d = w.out<S>(in.dst);
  auto* a = w.in<S>(in.src[0]);
  const uint8_t flags = in.u[kFloatFlags];
  for_lanes(m, [&](int i) {
    S r = 0;
    for (int k = 0; k < count; ++k) {
      const double v = kFunction(load_element<F>(a[i], k, flags & kFtz));
      r |= static_cast<S>(store_element<F>(v, Rounding::nearest, flags) << (k * F::bits % 64));
    }
    d[i] = r;
  });
  return Flow::next;
}

// rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64 read and write the upper 32 bits only; NaN is
// 0x7fffffff00000000.
template <bool kRoot>
Flow upper_half(Warp& w, const Instr& in, Mask m) {
  constexpr uint64_t kUpper = 0xffffffff00000000;
  auto* d = w.out<uint64_t>(in.dst);
  auto* a = w.in<uint64_t>(in.src[0]);
  for_lanes(m, [&](int i) {
    const double v = bit_copy<double>(flush_code<F64>(a[i] & kUpper));
    const double r = 1.0 / (kRoot ? std::sqrt(v) : v);
    d[i] = r == r ? flush_code<F64>(bit_copy<uint64_t>(r)) & kUpper : 0x7fffffff00000000;
  });
  return Flow::next;
}

template <double (*kFunction)(double)>
Handler for_type(Type t) {
  return with_elements(t, [](auto e) -> Handler {
    using E = decltype(e);
    return approximate<typename E::F, E::count, kFunction>;
  });
}

Handler for_opcode(std::string_view op, Type t) {
  if (op == "ex2") return for_type<ex2>(t);
  if (op == "tanh") return for_type<tangent>(t);
  if (op == "lg2") return for_type<lg2>(t);
  if (op == "sin") return for_type<sine>(t);
  if (op == "cos") return for_type<cosine>(t);
  return for_type<inverse_root>(t);
}

}  // namespace

void decode_approximate(Decoder& d) {
  const std::string_view op = d.root();
  d.need("approx");
  const bool ftz = d.take("ftz");
  if (ftz) d.in.u[kFloatFlags] |= kFtz;
  const bool halves = op == "ex2" || op == "tanh", root = op == "rsqrt";
  const Type t = halves ? d.type_of({Type::f32, Type::f16, Type::f16x2, Type::bf16, Type::bf16x2})
                 : root ? d.type_of({Type::f32, Type::f64})
                        : d.type_of({Type::f32});
  const bool bf16 = t == Type::bf16 || t == Type::bf16x2;
  if (op == "tanh" && ftz) d.fail("tanh has no .ftz");
  if (op == "ex2" && bf16 != ftz && t != Type::f32)
    d.fail(bf16 ? "ex2 on .bf16 needs .ftz" : "ex2 on .f16 has no .ftz");
  float_operands(d, t, 1);
  d.in.fn = root && t == Type::f64 && ftz ? upper_half<true> : for_opcode(op, t);
}

bool decode_approximate_rcp64(Decoder& d) {
  Decoder probe = d;
  if (!probe.take("approx") || !probe.take("f64")) return false;
  d.need("approx");
  d.need("ftz");
  float_operands(d, d.type(), 1);
  d.in.fn = upper_half<false>;
  return true;
}

}  // namespace tcgen05::vsm

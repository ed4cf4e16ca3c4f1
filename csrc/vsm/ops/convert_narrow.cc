// cvt with packed types: pairs of f16, bf16, e4m3, e5m2, e2m3, e3m2, e2m1, ue8m0, s2f6, and quadruples with
// .rs (PTX ISA 9.7.9.21).
#include <array>

#include "vsm/ops/common.h"
#include "vsm/ops/convert.h"

namespace tcgen05::vsm {
namespace {

using Kind = Operand::Kind;

// ---- elements: how a code is made from a double and read as one ----

// ue8m0 is 2^(code - 127); signs are dropped, 0xff is NaN. .rp goes up above 2^-127 and .rz is the exponent
// field.
uint32_t encode_ue8m0(double v, Rounding mode, uint8_t flags) {
  if (v != v) return 0xff;
  const uint32_t b = bit_copy<uint32_t>(static_cast<float>(std::fabs(v)));  // v is an f32 or a bf16
  uint32_t code = b >> 23;
  if (mode == Rounding::up && code != 0xff && (b & 0x7fffff) && b > 0x400000) ++code;
  return (flags & kFinite) && code == 0xff ? 0xfe : code;
}

double decode_ue8m0(uint32_t code) {
  return code == 0xff ? std::nan("") : std::ldexp(1.0, static_cast<int>(code) - 127);
}

// s2f6: two's complement with six fraction bits; always saturates, NaN gives the largest number.
uint32_t encode_s2f6(double v, Rounding, uint8_t flags) {
  if (v != v) return 0x7f;
  if ((flags & kRelu) && std::signbit(v)) v = 0;
  return static_cast<uint32_t>(static_cast<int32_t>(std::nearbyint(std::clamp(v * 64, -128.0, 127.0)))) &
         0xff;
}

struct Element {
  std::string_view pair;  // the modifier of two of them
  std::string_view quad;  // of four: only with .rs
  int width;              // bits in the packed register
  uint32_t (*encode)(double, Rounding, uint8_t flags);
  double (*decode)(uint32_t);
  uint32_t (*stochastic)(double, uint32_t random, int bits, uint8_t flags);
  Handler to_f16;  // plain conversion of two of them
  bool narrow;     // below 16 bits
};

template <class F>
uint32_t encode_element(double v, Rounding mode, uint8_t flags) {
  return static_cast<uint32_t>(finish_float<F>(v, mode, flags));
}

template <class F>
double decode_element(uint32_t code) {
  return decode_number<F>(code & (2 * F::sign - 1));
}

// Adds `bits` random bits to the bits that are cut off; a carry rounds away from zero.
template <class F>
uint32_t stochastic_element(double v, uint32_t random, int bits, uint8_t flags) {
  if ((flags & kRelu) && std::signbit(v) && v == v) v = 0;
  const uint64_t cut = encode_number<F>(v, Rounding::zero, flags & kFinite);
  const uint64_t magnitude = cut & (F::sign - 1);
  if (v != v || std::isinf(v)) return static_cast<uint32_t>(cut);
  const double low = decode_number<F>(magnitude);
  const double step =
      std::ldexp(1.0, std::max(static_cast<int>(magnitude >> F::fraction) - F::bias, F::least) - F::fraction);
  const double lost = std::floor(std::min((std::fabs(v) - low) / step, 1.0) * std::ldexp(1.0, bits));
  if (lost + random < std::ldexp(1.0, bits)) return static_cast<uint32_t>(cut);
  return static_cast<uint32_t>(magnitude == F::largest
                                   ? (cut & F::sign) |
                                         overflow<F>(cut & F::sign, Rounding::nearest, flags & kFinite)
                                   : cut + 1);
}

// From 8 and fewer bits to f16 without modifiers: all codes are known beforehand.
template <class F>
Flow narrow_to_f16(Warp& w, const Instr& in, Mask m) {
  constexpr int kWidth = F::bits == 4 ? 4 : 8;
  static const auto table = [] {
    std::array<uint16_t, size_t{1} << kWidth> t{};
    for (size_t i = 0; i < t.size(); ++i)
      t[i] = static_cast<uint16_t>(
          encode_number<F16>(decode_element<F>(static_cast<uint32_t>(i)), Rounding::nearest));
    return t;
  }();
  auto* d = w.out<uint32_t>(in.dst);
  auto* a = w.in<uint32_t>(in.src[0]);
  for_lanes(m, [&](int i) {
    d[i] = table[a[i] & (table.size() - 1)] |
           static_cast<uint32_t>(table[a[i] >> kWidth & (table.size() - 1)]) << 16;
  });
  return Flow::next;
}

template <class F>
constexpr Element element(std::string_view pair, std::string_view quad, int width) {
  return {pair,
          quad,
          width,
          encode_element<F>,
          decode_element<F>,
          stochastic_element<F>,
          F::bits < 16 ? narrow_to_f16<F> : nullptr,
          F::bits < 16};
}

constexpr Element kElements[] = {
    element<F16>("f16x2", "", 16),
    element<BF16>("bf16x2", "", 16),
    element<E4M3>("e4m3x2", "e4m3x4", 8),
    element<E5M2>("e5m2x2", "e5m2x4", 8),
    element<E2M3>("e2m3x2", "e2m3x4", 8),
    element<E3M2>("e3m2x2", "e3m2x4", 8),
    element<E2M1>("e2m1x2", "e2m1x4", 4),
    {"ue8m0x2", "", 8, encode_ue8m0, decode_ue8m0, nullptr, nullptr, true},
    {"s2f6x2", "", 8, encode_s2f6, [](uint32_t c) { return static_cast<int8_t>(c) * 0x1p-6; }, nullptr,
     nullptr, true},
};
constexpr const Element& kF16 = kElements[0];
constexpr const Element& kBf16 = kElements[1];
constexpr const Element& kUe8m0 = kElements[7];
constexpr const Element& kS2f6 = kElements[8];

const Element* find(std::string_view name, std::string_view Element::* spelling) {
  for (const Element& e : kElements)
    if (e.*spelling == name) return &e;
  return nullptr;
}

// ---- handlers ----

struct Packed {
  const Element* to = nullptr;
  const Element* from = nullptr;  // null: f32
  Rounding rounding = Rounding::nearest;
  uint8_t flags = 0;
  Ref scale = kNoRef;  // two ue8m0: divides on the way to s2f6, multiplies on the way to bf16
  Ref random = kNoRef;
};

double scale_of(Warp& w, const Packed& p, int lane, int index) {
  return p.scale == kNoRef ? 1.0 : decode_ue8m0(w.in<uint32_t>(p.scale)[lane] >> (8 * index) & 0xff);
}

// src[0] goes to the upper element, src[1] to the lower one.
Flow pair_from_f32(Warp& w, const Instr& in, Mask m) {
  const auto& p = *static_cast<const Packed*>(in.aux);
  auto* d = w.out<uint32_t>(in.dst);
  auto *a = w.in<uint32_t>(in.src[0]), *b = w.in<uint32_t>(in.src[1]);
  for_lanes(m, [&](int i) {
    const double high = bit_copy<float>(a[i]), low = bit_copy<float>(b[i]);
    if (p.random != kNoRef) {
      const uint32_t r = w.in<uint32_t>(p.random)[i];
      const int bits = p.to == &kF16 ? 13 : 16;
      const uint32_t keep = (1u << bits) - 1;
      d[i] = p.to->stochastic(high, r >> 16 & keep, bits, p.flags) << 16 |
             p.to->stochastic(low, r & keep, bits, p.flags);
    } else {
      d[i] = p.to->encode(high / scale_of(w, p, i, 1), p.rounding, p.flags) << p.to->width |
             p.to->encode(low / scale_of(w, p, i, 0), p.rounding, p.flags);
    }
  });
  return Flow::next;
}

Flow pair_from_pair(Warp& w, const Instr& in, Mask m) {
  const auto& p = *static_cast<const Packed*>(in.aux);
  auto* d = w.out<uint32_t>(in.dst);
  auto* a = w.in<uint32_t>(in.src[0]);
  const uint32_t keep = (1u << p.from->width) - 1;
  const bool divide = p.to == &kS2f6;
  for_lanes(m, [&](int i) {
    uint32_t r = 0;
    for (int k = 0; k < 2; ++k) {
      const double v = p.from->decode(a[i] >> (k * p.from->width) & keep), s = scale_of(w, p, i, k);
      r |= p.to->encode(divide ? v / s : v * s, p.rounding, p.flags) << (k * p.to->width);
    }
    d[i] = r;
  });
  return Flow::next;
}

// Four f32 of the list, the first to the highest element. Each half of the random bits serves two elements;
// fp4 takes the upper (first two elements) or lower bytes of both halves.
Flow quad_from_f32(Warp& w, const Instr& in, Mask m) {
  const auto& p = *static_cast<const Packed*>(in.aux);
  auto* d = w.out<uint32_t>(in.dst);
  auto* random = w.in<uint32_t>(p.random);
  const Ref* refs = &w.program->refs[in.list];
  for_lanes(m, [&](int i) {
    uint32_t r = 0;
    for (int k = 0; k < 4; ++k) {
      const bool upper = k < 2;
      uint32_t bits = upper ? random[i] >> 16 : random[i] & 0xffff;
      if (p.to->width == 4) {
        const int at = upper ? 8 : 0;
        bits = (random[i] >> (16 + at) & 0xff) << 8 | (random[i] >> at & 0xff);
      }
      r = r << p.to->width | p.to->stochastic(bit_copy<float>(w.in<uint32_t>(refs[k])[i]), bits, 16, p.flags);
    }
    d[i] = r;
  });
  return Flow::next;
}

// The usual cases, .rn without more.
template <uint32_t (*kNearest)(uint32_t)>
Flow pair_nearest(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<uint32_t>(in.dst);
  auto *a = w.in<uint32_t>(in.src[0]), *b = w.in<uint32_t>(in.src[1]);
  for_lanes(m, [&](int i) { d[i] = kNearest(a[i]) << 16 | kNearest(b[i]); });
  return Flow::next;
}

// ---- decoding ----

// A register of at least `bits` bits and at most 32; narrower results are extended by zeros.
void check_register(Decoder& d, const Operand& x, int bits, const char* what) {
  const int have = bits_of(d.register_type(x));
  if (x.kind == Kind::reg && d.register_type(x) != Type::pred && have >= bits && have <= 32) return;
  if (x.kind == Kind::integer) return;
  d.fail(std::string("the ") + what + " must be a register of " + std::to_string(bits) + " bits");
}

Ref packed_source(Decoder& d, const Operand& x, const Element& e) {
  check_register(d, x, 2 * e.width, "source");
  return d.src_any(x, Type::b32);
}

void check_rounding(Decoder& d, const ConvertModifiers& m, const Packed& p) {
  const bool to_ue8m0 = p.to == &kUe8m0;
  const bool both = !p.to->narrow && !p.from;  // f16x2 and bf16x2 from f32
  const bool ok = m.rounded && (m.rounding == Rounding::nearest ? !to_ue8m0
                                : m.rounding == Rounding::zero  ? to_ue8m0 || both
                                                                : m.rounding == Rounding::up && to_ue8m0);
  if (!ok)
    d.fail(std::string("needs a rounding modifier: ") + (to_ue8m0 ? ".rz, .rp"
                                                         : both   ? ".rn, .rz, .rs"
                                                                  : ".rn"));
  if (m.integral != Integral::none) d.fail("integer rounding is not allowed on packed types");
  if (m.flags & (kFlush | kSaturate)) d.fail(".ftz and .sat are not allowed on packed types");
  if (p.to->narrow && !to_ue8m0 && !(m.flags & kFinite)) d.fail("results below 16 bits need .satfinite");
  if ((m.flags & kRelu) && to_ue8m0) d.fail(".relu is not allowed on .ue8m0x2");
  const bool up = p.to == &kBf16 && p.from && p.from->narrow && p.from != &kUe8m0;
  if (!p.to->narrow && p.from && !up && (m.flags & kFinite))
    d.fail(".satfinite is not allowed to .f16x2 from narrower types");
  if (m.scaled && !up && p.to != &kS2f6)
    d.fail(".scaled::n2::ue8m0 is for .s2f6x2, and for .bf16x2 from narrow types");
  if (p.from == &kUe8m0 && (m.flags & kRelu)) d.fail(".relu is not allowed from .ue8m0x2");
}

// The pairs of types that exist.
bool exists(const Packed& p) {
  if (!p.from) return true;
  if (p.to == &kUe8m0) return p.from == &kBf16;
  if (p.to == &kS2f6) return p.from == &kBf16;
  if (p.to->narrow) return !p.from->narrow;
  if (p.to == &kF16) return p.from->narrow && p.from != &kUe8m0 && p.from != &kS2f6;
  return p.from->narrow;
}

}  // namespace

bool decode_packed_convert(Decoder& d, const ConvertModifiers& m, std::string_view to,
                           std::string_view from) {
  auto p = std::make_shared<Packed>();
  const Element* quad = to.empty() ? nullptr : find(to, &Element::quad);
  p->to = quad ? quad : find(to, &Element::pair);
  p->from = find(from, &Element::pair);
  if (!p->to && !p->from) return false;
  if (!p->to || (!p->from && from != "f32") || (quad && p->from) || !exists(*p))
    d.fail("cannot convert ." + std::string(from) + " to ." + std::string(to));
  check_rounding(d, m, *p);
  if (m.stochastic ? p->from || (!quad && p->to->narrow) : quad != nullptr)
    d.fail(m.stochastic ? ".rs is not allowed here" : "four results need .rs");
  p->rounding = m.rounding;
  p->flags = m.flags;
  const size_t sources = p->from || quad ? 1 : 2;
  d.need_operands(1 + sources + (m.stochastic || m.scaled));
  check_register(d, d.operand(0), (quad ? 4 : 2) * p->to->width, "destination");
  d.in.dst = d.dst_any(d.operand(0));
  if (quad) {
    const std::vector<Ref> refs = d.refs(d.operand(1), Type::f32, false);
    if (refs.size() != 4) d.fail("needs a vector of 4 sources, found " + std::to_string(refs.size()));
    d.set_list(refs);
    d.in.fn = quad_from_f32;
  } else if (p->from) {
    d.in.src[0] = packed_source(d, d.operand(1), *p->from);
    d.in.fn = p->to == &kF16 && !m.flags ? p->from->to_f16 : pair_from_pair;
  } else {
    for (size_t i = 0; i < 2; ++i) d.in.src[i] = d.src(d.operand(i + 1), Type::f32);
    const bool plain = !p->to->narrow && m.rounding == Rounding::nearest && !m.flags && !m.stochastic;
    d.in.fn = !plain           ? pair_from_f32
              : p->to == &kF16 ? pair_nearest<f16_nearest>
                               : pair_nearest<bf16_nearest>;
  }
  if (m.stochastic) p->random = d.src(d.operand(1 + sources), Type::b32);
  if (m.scaled) p->scale = d.src(d.operand(1 + sources), Type::b16);
  d.own(p);
  return true;
}

}  // namespace tcgen05::vsm

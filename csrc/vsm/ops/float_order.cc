// Signs and order of floating-point numbers: neg, abs, copysign, min, max (PTX ISA 9.7.3, 9.7.4). Codes are
// compared as integers, so that -0 is below +0.
#include "vsm/ops/float.h"

namespace tcgen05::vsm {
namespace {

// neg and abs of all elements: imm is XORed in behind the AND with `keep`.
template <class F, int count, bool kAbsolute>
Flow sign(Warp& w, const Instr& in, Mask m) {
  using S = packed_slot_t<F, count>;
  auto* d = w.out<S>(in.dst);
  auto* a = w.in<S>(in.src[0]);
  const bool ftz = in.u[kFloatFlags] & kFtz;
  S signs = 0;
  for (int k = 0; k < count; ++k) signs |= static_cast<S>(F::sign << (k * F::bits % 64));
  for_lanes(m, [&](int i) {
    S x = a[i];
    if (ftz) {
      S flushed = 0;
      for (int k = 0; k < count; ++k) {
        const uint64_t code = x >> (k * F::bits % 64) & (2 * F::sign - 1);
        flushed |= static_cast<S>(flush_code<F>(code) << (k * F::bits % 64));
      }
      x = flushed;
    }
    d[i] = kAbsolute ? x & ~signs : x ^ signs;
  });
  return Flow::next;
}

template <class F>
bool is_nan(uint64_t code) {
  return (code & (F::sign - 1)) > F::infinity;
}

template <class F>
uint64_t pick(uint64_t a, uint64_t b, bool largest, bool nan) {
  const bool na = is_nan<F>(a), nb = is_nan<F>(b);
  if (na && nb) return F::nan;
  if (na) return nan ? F::nan : b;
  if (nb) return nan ? F::nan : a;
  auto key = [](uint64_t x) {  // signed order of the codes
    const int64_t s = static_cast<int64_t>(x << (64 - F::bits)) >> (64 - F::bits);
    return s < 0 ? s ^ static_cast<int64_t>(F::sign - 1) : s;
  };
  return (key(a) < key(b)) != largest ? a : b;
}

// Two or three sources.
template <class F, int count, bool kLargest>
Flow minimum(Warp& w, const Instr& in, Mask m) {
  using S = packed_slot_t<F, count>;
  auto* d = w.out<S>(in.dst);
  auto *a = w.in<S>(in.src[0]), *b = w.in<S>(in.src[1]);
  auto* c = in.src[2] == kNoRef ? nullptr : w.in<S>(in.src[2]);
  const uint8_t flags = in.u[kFloatFlags];
  for_lanes(m, [&](int i) {
    S r = 0;
    for (int k = 0; k < count; ++k) {
      auto element = [&](S x) {
        const uint64_t code = static_cast<uint64_t>(x) >> (k * F::bits % 64) & (2 * (F::sign - 1) + 1);
        return flags & kFtz ? flush_code<F>(code) : code;
      };
      uint64_t x = element(a[i]), y = element(b[i]);
      const uint64_t sign = flags & kXorSign ? (x ^ y) & F::sign : 0;
      const uint64_t keep = flags & kAbs ? F::sign - 1 : ~uint64_t{0};
      uint64_t v = pick<F>(x & keep, y & keep, kLargest, flags & kNan);
      if (c) v = pick<F>(v, element(c[i]) & keep, kLargest, flags & kNan);
      if (!is_nan<F>(v)) v |= sign;
      r |= static_cast<S>(v << (k * F::bits % 64));
    }
    d[i] = r;
  });
  return Flow::next;
}

template <class S>
Flow copysign(Warp& w, const Instr& in, Mask m) {
  constexpr S kSign = S{1} << (8 * sizeof(S) - 1);
  auto* d = w.out<S>(in.dst);
  auto *a = w.in<S>(in.src[0]), *b = w.in<S>(in.src[1]);
  for_lanes(m, [&](int i) { d[i] = (a[i] & kSign) | (b[i] & ~kSign); });
  return Flow::next;
}

void take_ftz(Decoder& d, Type t) {
  if (!d.take("ftz")) return;
  if (t != Type::f32 && !is_f16(t)) d.fail(".ftz is for .f32 and .f16 only");
  d.in.u[kFloatFlags] |= kFtz;
}

}  // namespace

void decode_sign(Decoder& d, Type t) {
  d.type();
  take_ftz(d, t);
  if (t == Type::f32x2) d.fail("type .f32x2 is not allowed");
  float_operands(d, t, 1);
  const bool absolute = d.root() == "abs";
  set_handler(d,
              with_elements(t,
                            [&](auto e) -> Handler {
                              using E = decltype(e);
                              return absolute ? sign<typename E::F, E::count, true>
                                              : sign<typename E::F, E::count, false>;
                            }),
              t);
}

void decode_minimum(Decoder& d, Type t) {
  d.type();
  take_ftz(d, t);
  uint8_t& flags = d.in.u[kFloatFlags];
  if (d.take("NaN")) flags |= kNan;
  if (d.take("xorsign")) flags |= kXorSign;
  if (d.take("abs")) flags |= kAbs;
  const bool three = d.operands() == 4;
  if (three && t != Type::f32) d.fail("three sources are for .f32 only");
  if ((flags & kXorSign) && (!(flags & kAbs) || three)) d.fail(".xorsign needs .abs and two sources");
  if ((flags & kAbs) && !(flags & kXorSign) && !three) d.fail(".abs without .xorsign needs three sources");
  if (t == Type::f64 && flags) d.fail("modifiers are not allowed on .f64");
  if (t == Type::f32x2) d.fail("type .f32x2 is not allowed");
  float_operands(d, t, three ? 3 : 2);
  const bool largest = d.root() == "max";
  set_handler(d,
              with_elements(t,
                            [&](auto e) -> Handler {
                              using E = decltype(e);
                              return largest ? minimum<typename E::F, E::count, true>
                                             : minimum<typename E::F, E::count, false>;
                            }),
              t);
}

void decode_copysign(Decoder& d) {
  const Type t = d.type_of({Type::f32, Type::f64});
  float_operands(d, t, 2);
  d.in.fn = t == Type::f32 ? copysign<uint32_t> : copysign<uint64_t>;
}

}  // namespace tcgen05::vsm

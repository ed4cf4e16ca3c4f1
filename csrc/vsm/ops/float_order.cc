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

// Codes travel in the smallest type that compilers vectorise well.
template <class F>
using code_t = std::conditional_t<F::bits == 64, uint64_t, uint32_t>;

template <class F>
bool is_nan(code_t<F> code) {
  return (code & (F::sign - 1)) > F::infinity;
}

template <class F, bool kLargest>
code_t<F> pick(code_t<F> a, code_t<F> b, bool nan) {
  using U = code_t<F>;
  using I = std::make_signed_t<U>;
  constexpr int kUnused = 8 * sizeof(U) - F::bits;
  constexpr U kNanCode = static_cast<U>(F::nan);
  auto key = [](U x) {  // signed order of the codes
    const I s = static_cast<I>(x << kUnused) >> kUnused;
    return s ^ (s >> (8 * sizeof(U) - 1) & static_cast<I>(F::sign - 1));
  };
  const bool na = is_nan<F>(a), nb = is_nan<F>(b);
  U r = (key(a) < key(b)) != kLargest ? a : b;
  r = na ? (nan ? kNanCode : b) : r;
  r = nb ? (nan || na ? kNanCode : a) : r;
  return r;
}

// Two sources; a third one goes with a second call.
template <class F, int count, bool kLargest>
Flow minimum(Warp& w, const Instr& in, Mask m) {
  using S = packed_slot_t<F, count>;
  using U = code_t<F>;
  auto* d = w.out<S>(in.dst);
  auto *a = w.in<S>(in.src[0]), *b = w.in<S>(in.src[1]);
  auto* c = in.src[2] == kNoRef ? nullptr : w.in<S>(in.src[2]);
  const uint8_t flags = in.u[kFloatFlags];
  const U keep = static_cast<U>(flags & kAbs ? F::sign - 1 : 2 * (F::sign - 1) + 1),
          sign = flags & kXorSign ? static_cast<U>(F::sign) : 0;
  const bool nan = flags & kNan, ftz = flags & kFtz;
  auto element = [ftz](S x, int k) {
    const U code = static_cast<U>(x >> (k * F::bits % 64));
    return ftz ? static_cast<U>(flush_code<F>(code)) : code;
  };
  for_lanes(m, [&](int i) {
    S r = 0;
    for (int k = 0; k < count; ++k) {
      const U x = element(a[i], k), y = element(b[i], k);
      U v = pick<F, kLargest>(x & keep, y & keep, nan);
      if (c) v = pick<F, kLargest>(v, element(c[i], k) & keep, nan);
      v |= is_nan<F>(v) ? 0 : (x ^ y) & sign;
      r |= static_cast<S>(v) << (k * F::bits % 64);
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

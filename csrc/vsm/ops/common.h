// What the instruction families share: lanes as C++ values, and handlers made of small functions.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "vsm/decode.h"
#include "vsm/machine.h"

namespace tcgen05::vsm {

// How a value of type T lies in a slot: zero-extended to 32 or 64 bits.
template <class T>
using slot_t = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <class T>
inline T from_slot(slot_t<T> s) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(s);
  } else {
    T v;
    std::memcpy(&v, &s, sizeof v);
    return v;
  }
}

template <class T>
inline slot_t<T> to_slot(T v) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<slot_t<T>>(static_cast<std::make_unsigned_t<T>>(v));
  } else {
    slot_t<T> s;
    std::memcpy(&s, &v, sizeof v);
    return s;
  }
}

// Handlers: dst = F::f(src...), lane by lane. A is the type read, R the type written.
template <class F, class A, class R = A>
Flow unary(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<slot_t<R>>(in.dst);
  auto* a = w.in<slot_t<A>>(in.src[0]);
  for_lanes(m, [&](int i) { d[i] = to_slot<R>(F::template f<A>(from_slot<A>(a[i]))); });
  return Flow::next;
}

template <class F, class A, class R = A>
Flow binary(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<slot_t<R>>(in.dst);
  auto* a = w.in<slot_t<A>>(in.src[0]);
  auto* b = w.in<slot_t<A>>(in.src[1]);
  for_lanes(m, [&](int i) { d[i] = to_slot<R>(F::template f<A>(from_slot<A>(a[i]), from_slot<A>(b[i]))); });
  return Flow::next;
}

template <class F, class A, class R = A>
Flow ternary(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<slot_t<R>>(in.dst);
  auto* a = w.in<slot_t<A>>(in.src[0]);
  auto* b = w.in<slot_t<A>>(in.src[1]);
  auto* c = w.in<slot_t<R>>(in.src[2]);
  for_lanes(m, [&](int i) {
    d[i] = to_slot<R>(F::template f<A>(from_slot<A>(a[i]), from_slot<A>(b[i]), from_slot<R>(c[i])));
  });
  return Flow::next;
}

// The same for shifts and bit fields, whose second and third operands are 32-bit numbers.
template <class F, class A>
Flow with_count(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<slot_t<A>>(in.dst);
  auto* a = w.in<slot_t<A>>(in.src[0]);
  auto* b = w.in<uint32_t>(in.src[1]);
  for_lanes(m, [&](int i) { d[i] = to_slot<A>(F::template f<A>(from_slot<A>(a[i]), b[i])); });
  return Flow::next;
}

// The handler of an operation on integers of type `t`; null if `t` is none.
template <template <class, class> class Make, class F>
Handler for_integer(Type t) {
  switch (t) {
    case Type::u16:
      return Make<F, uint16_t>::handler;
    case Type::s16:
      return Make<F, int16_t>::handler;
    case Type::u32:
      return Make<F, uint32_t>::handler;
    case Type::s32:
      return Make<F, int32_t>::handler;
    case Type::u64:
      return Make<F, uint64_t>::handler;
    case Type::s64:
      return Make<F, int64_t>::handler;
    default:
      return nullptr;
  }
}

template <template <class, class> class Make, class F>
Handler for_bits(Type t) {
  switch (bits_of(t)) {
    case 16:
      return Make<F, uint16_t>::handler;
    case 32:
      return Make<F, uint32_t>::handler;
    case 64:
      return Make<F, uint64_t>::handler;
    default:
      return nullptr;
  }
}

template <class F, class A>
struct Unary {
  static constexpr Handler handler = unary<F, A>;
};
template <class F, class A>
struct Binary {
  static constexpr Handler handler = binary<F, A>;
};
template <class F, class A>
struct Ternary {
  static constexpr Handler handler = ternary<F, A>;
};
template <class F, class A>
struct WithCount {
  static constexpr Handler handler = with_count<F, A>;
};

// Decoding of `d, a, b, ...` with all operands of one type.
inline void simple_operands(Decoder& d, Type t, size_t sources) {
  d.need_operands(sources + 1);
  d.in.dst = d.dst(d.operand(0), t);
  for (size_t i = 0; i < sources; ++i) d.in.src[i] = d.src(d.operand(i + 1), t);
}

inline void set_handler(Decoder& d, Handler h, Type t) {
  if (!h) d.fail("type ." + std::string(name_of(t)) + " is not allowed");
  d.in.fn = h;
}

}  // namespace tcgen05::vsm

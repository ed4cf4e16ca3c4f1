// Comparison and selection (PTX ISA 9.7.5, 9.7.6): setp, set, selp, slct, testp.
#include <cmath>
#include <iterator>

#include "vsm/ops/common.h"
#include "vsm/ops/families.h"
#include "vsm/ops/half.h"

namespace tcgen05::vsm {
namespace {

struct Eq {
  template <class T>
  static bool f(T a, T b) {
    return a == b;
  }
};
struct Ne {
  template <class T>
  static bool f(T a, T b) {
    return a < b || a > b;
  }
};  // ordered
struct Lt {
  template <class T>
  static bool f(T a, T b) {
    return a < b;
  }
};
struct Le {
  template <class T>
  static bool f(T a, T b) {
    return a <= b;
  }
};
struct Gt {
  template <class T>
  static bool f(T a, T b) {
    return a > b;
  }
};
struct Ge {
  template <class T>
  static bool f(T a, T b) {
    return a >= b;
  }
};
// The unordered forms are the complements.
template <class Op>
struct Not {
  template <class T>
  static bool f(T a, T b) {
    return !Op::f(a, b);
  }
};
struct Num {
  template <class T>
  static bool f(T a, T b) {
    return a == a && b == b;
  }
};
// Equal, and false for numbers of which one is NaN, in `Ne` above: so `ne` of integers is the same.

// What a lane's value is for comparing: halves as float.
template <class T>
struct Compared {
  using type = T;
};
template <>
struct Compared<Half> {
  using type = float;
};
template <>
struct Compared<BHalf> {
  using type = float;
};

template <class Op, class T>
Mask compare(Warp& w, const Instr& in, Mask m) {
  using V = typename Compared<T>::type;
  auto* a = w.in<slot_t<T>>(in.src[0]);
  auto* b = w.in<slot_t<T>>(in.src[1]);
  Mask r = 0;
  bool flush = in.u[3] && sizeof(T) == 4;
  auto value = [flush](slot_t<T> s) {
    V v = static_cast<V>(from_slot<T>(s));
    if constexpr (std::is_same_v<V, float>)
      if (flush && std::fpclassify(v) == FP_SUBNORMAL) v = std::copysign(0.0f, v);
    return v;
  };
  if (m == ~Mask{0} && !flush) {
    uint8_t bits[32];
#pragma GCC ivdep
    for (int i = 0; i < 32; ++i)
      bits[i] = Op::f(static_cast<V>(from_slot<T>(a[i])), static_cast<V>(from_slot<T>(b[i])));
    for (int i = 0; i < 32; i += 8) {  // eight bytes of 0 or 1 to eight bits
      uint64_t eight;
      std::memcpy(&eight, bits + i, 8);
      r |= static_cast<Mask>(eight * 0x0102040810204080 >> 56) << i;
    }
    return r;
  }
  for_lanes(m, [&](int i) { r |= static_cast<Mask>(Op::f(value(a[i]), value(b[i]))) << i; });
  return r;
}

using Comparison = Mask (*)(Warp&, const Instr&, Mask);

// The two halves of a packed type: low in the result, high in `*high`.
template <class Op, class H>
Mask compare_packed(Warp& w, const Instr& in, Mask m, Mask* high) {
  auto *a = w.in<uint32_t>(in.src[0]), *b = w.in<uint32_t>(in.src[1]);
  Mask lo = 0, hi = 0;
  for_lanes(m, [&](int i) {
    auto half = [](uint32_t x) { return static_cast<float>(H{static_cast<uint16_t>(x)}); };
    lo |= static_cast<Mask>(Op::f(half(a[i]), half(b[i]))) << i;
    hi |= static_cast<Mask>(Op::f(half(a[i] >> 16), half(b[i] >> 16))) << i;
  });
  *high = hi;
  return lo;
}

using PackedComparison = Mask (*)(Warp&, const Instr&, Mask, Mask*);

Mask combine(Warp& w, const Instr& in, Mask result) {
  if (in.u[0] == 0) return result;
  Mask c = w.predicate(in.src[2]) ^ (in.u[1] ? ~Mask{0} : 0);
  return in.u[0] == 1 ? result & c : in.u[0] == 2 ? result | c : result ^ c;
}

template <class Op, class T>
Flow setp(Warp& w, const Instr& in, Mask m) {
  Mask r = compare<Op, T>(w, in, m);
  w.set_predicate(in.dst, m, combine(w, in, r));
  if (in.dst2 != kNoRef) w.set_predicate(in.dst2, m, combine(w, in, ~r));
  return Flow::next;
}

template <class Op, class H>
Flow setp_packed(Warp& w, const Instr& in, Mask m) {
  Mask high = 0;
  Mask low = compare_packed<Op, H>(w, in, m, &high);
  w.set_predicate(in.dst, m, combine(w, in, low));
  if (in.dst2 != kNoRef) w.set_predicate(in.dst2, m, combine(w, in, high));
  return Flow::next;
}

// `u[2]`: the value of true. 1: 0xffffffff, 2: 1.0f, 3: 1.0 in f16, 4: 1.0 in bf16, 5: 0xffff.
template <class Op, class T>
Flow set(Warp& w, const Instr& in, Mask m) {
  static constexpr uint32_t kTrue[] = {0, 0xffffffff, 0x3f800000, 0x3c00, 0x3f80, 0xffff};
  Mask r = combine(w, in, compare<Op, T>(w, in, m));
  auto* d = w.out<uint32_t>(in.dst);
  for_lanes(m, [&](int i) { d[i] = r >> i & 1 ? kTrue[in.u[2]] : 0; });
  return Flow::next;
}

template <class Op, class H>
Flow set_packed(Warp& w, const Instr& in, Mask m) {
  static constexpr uint32_t kTrue[] = {0, 0, 0, 0x3c00, 0x3f80, 0xffff};
  Mask high = 0;
  Mask low = compare_packed<Op, H>(w, in, m, &high);
  low = combine(w, in, low);
  high = combine(w, in, high);
  auto* d = w.out<uint32_t>(in.dst);
  for_lanes(m, [&](int i) {
    d[i] = (low >> i & 1 ? kTrue[in.u[2]] : 0) | (high >> i & 1 ? kTrue[in.u[2]] << 16 : 0);
  });
  return Flow::next;
}

enum class Form { predicate, value };

template <Form form, class Op, class T>
constexpr Handler scalar_handler() {
  if constexpr (form == Form::predicate)
    return setp<Op, T>;
  else
    return set<Op, T>;
}
template <Form form, class Op, class H>
constexpr Handler packed_handler() {
  if constexpr (form == Form::predicate)
    return setp_packed<Op, H>;
  else
    return set_packed<Op, H>;
}

template <Form form, class Op>
Handler any_type(Type t) {
  switch (t) {
    case Type::b16:
    case Type::u16:
      return scalar_handler<form, Op, uint16_t>();
    case Type::s16:
      return scalar_handler<form, Op, int16_t>();
    case Type::b32:
    case Type::u32:
      return scalar_handler<form, Op, uint32_t>();
    case Type::s32:
      return scalar_handler<form, Op, int32_t>();
    case Type::b64:
    case Type::u64:
      return scalar_handler<form, Op, uint64_t>();
    case Type::s64:
      return scalar_handler<form, Op, int64_t>();
    case Type::f16:
      return scalar_handler<form, Op, Half>();
    case Type::bf16:
      return scalar_handler<form, Op, BHalf>();
    case Type::f32:
      return scalar_handler<form, Op, float>();
    case Type::f64:
      return scalar_handler<form, Op, double>();
    case Type::f16x2:
      return packed_handler<form, Op, Half>();
    case Type::bf16x2:
      return packed_handler<form, Op, BHalf>();
    default:
      return nullptr;
  }
}

template <Form form>
Handler comparison(Decoder& d, std::string_view op, Type t) {
  bool real = is_real(t) || t == Type::f16x2 || t == Type::bf16x2;
  if (op == "eq") return any_type<form, Eq>(t);
  if (op == "ne") return any_type<form, Ne>(t);
  if (is_bits(t)) d.fail("comparison ." + std::string(op) + " is not defined on ." + std::string(name_of(t)));
  bool natural = kind_of(t) == TypeKind::uint;
  if (op == "lt" || (natural && op == "lo")) return any_type<form, Lt>(t);
  if (op == "le" || (natural && op == "ls")) return any_type<form, Le>(t);
  if (op == "gt" || (natural && op == "hi")) return any_type<form, Gt>(t);
  if (op == "ge" || (natural && op == "hs")) return any_type<form, Ge>(t);
  if (real) {
    if (op == "equ") return any_type<form, Not<Ne>>(t);
    if (op == "neu") return any_type<form, Not<Eq>>(t);
    if (op == "ltu") return any_type<form, Not<Ge>>(t);
    if (op == "leu") return any_type<form, Not<Gt>>(t);
    if (op == "gtu") return any_type<form, Not<Le>>(t);
    if (op == "geu") return any_type<form, Not<Lt>>(t);
    if (op == "num") return any_type<form, Num>(t);
    if (op == "nan") return any_type<form, Not<Num>>(t);
  }
  d.fail("unknown comparison '." + std::string(op) + "' of ." + std::string(name_of(t)));
}

void decode_condition(Decoder& d, size_t at) {
  d.in.u[0] = static_cast<uint8_t>(d.take_any({"and", "or", "xor"}) + 1);
  d.in.u[3] = d.take("ftz");
  if (d.in.u[0]) {
    bool negated = false;
    d.in.src[2] = d.pred_src(d.operand(at), &negated);
    d.in.u[1] = negated;
  }
  d.need_operands(d.in.u[0] ? at + 1 : at);
}

void decode_setp(Decoder& d) {
  std::string_view op = d.take_next();
  decode_condition(d, 3);
  Type t = d.type();
  const Operand& out = d.operand(0);
  if (out.kind == Operand::Kind::pair) {
    d.in.dst = d.pred_dst(out.list[0]);
    d.in.dst2 = d.pred_dst(out.list[1]);
  } else {
    d.in.dst = d.pred_dst(out);
  }
  d.in.src[0] = d.src(d.operand(1), t);
  d.in.src[1] = d.src(d.operand(2), t);
  set_handler(d, comparison<Form::predicate>(d, op, t), t);
}

void decode_set(Decoder& d) {
  std::string_view op = d.take_next();
  decode_condition(d, 3);
  Type r = d.type(), t = d.type();
  d.in.dst = d.dst(d.operand(0), r);
  d.in.src[0] = d.src(d.operand(1), t);
  d.in.src[1] = d.src(d.operand(2), t);
  bool packed = t == Type::f16x2 || t == Type::bf16x2;
  switch (r) {
    case Type::u32:
    case Type::s32:
    case Type::b32:
      d.in.u[2] = packed ? 5 : 1;
      break;
    case Type::f32:
      d.in.u[2] = 2;
      break;
    case Type::f16:
    case Type::f16x2:
      d.in.u[2] = 3;
      break;
    case Type::bf16:
    case Type::bf16x2:
      d.in.u[2] = 4;
      break;
    case Type::u16:
    case Type::s16:
    case Type::b16:
      d.in.u[2] = 5;
      break;
    default:
      d.fail("set cannot write ." + std::string(name_of(r)));
  }
  set_handler(d, comparison<Form::value>(d, op, t), t);
}

template <class S>
Flow selp(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<S>(in.dst);
  auto *a = w.in<S>(in.src[0]), *b = w.in<S>(in.src[1]);
  Mask p = w.predicate(in.src[2]) ^ (in.u[0] ? ~Mask{0} : 0);
  for_lanes(m, [&](int i) {
    S mask = S{0} - static_cast<S>(p >> i & 1);
    d[i] = (a[i] & mask) | (b[i] & ~mask);
  });
  return Flow::next;
}

void decode_selp(Decoder& d) {
  Type t = d.type();
  d.need_operands(4);
  d.in.dst = d.dst(d.operand(0), t);
  d.in.src[0] = d.src(d.operand(1), t);
  d.in.src[1] = d.src(d.operand(2), t);
  bool negated = false;
  d.in.src[2] = d.pred_src(d.operand(3), &negated);
  d.in.u[0] = negated;
  int b = bits_of(t);
  set_handler(d, b == 16 || b == 32 ? selp<uint32_t> : b == 64 ? selp<uint64_t> : Handler{nullptr}, t);
}

template <class S, class C>
Flow slct(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<S>(in.dst);
  auto *a = w.in<S>(in.src[0]), *b = w.in<S>(in.src[1]);
  auto* c = w.in<uint32_t>(in.src[2]);
  for_lanes(m, [&](int i) { d[i] = from_slot<C>(c[i]) >= 0 ? a[i] : b[i]; });
  return Flow::next;
}

void decode_slct(Decoder& d) {
  d.take("ftz");
  Type t = d.type(), c = d.type_of({Type::s32, Type::f32});
  if (bits_of(t) < 16 || bits_of(t) > 64) d.fail("type ." + std::string(name_of(t)) + " is not allowed");
  d.need_operands(4);
  d.in.dst = d.dst(d.operand(0), t);
  d.in.src[0] = d.src(d.operand(1), t);
  d.in.src[1] = d.src(d.operand(2), t);
  d.in.src[2] = d.src(d.operand(3), c);
  bool wide = bits_of(t) == 64;
  d.in.fn = c == Type::s32 ? (wide ? slct<uint64_t, int32_t> : slct<uint32_t, int32_t>)
                           : (wide ? slct<uint64_t, float> : slct<uint32_t, float>);
}

template <class T>
Flow testp(Warp& w, const Instr& in, Mask m) {
  auto* a = w.in<slot_t<T>>(in.src[0]);
  Mask r = 0;
  for_lanes(m, [&](int i) {
    int c = std::fpclassify(from_slot<T>(a[i]));
    bool yes = false;
    switch (in.u[0]) {
      case 0:
        yes = c != FP_NAN && c != FP_INFINITE;
        break;
      case 1:
        yes = c == FP_INFINITE;
        break;
      case 2:
        yes = c != FP_NAN;
        break;
      case 3:
        yes = c == FP_NAN;
        break;
      case 4:
        yes = c == FP_NORMAL;
        break;
      default:
        yes = c == FP_SUBNORMAL;
    }
    r |= static_cast<Mask>(yes) << i;
  });
  w.set_predicate(in.dst, m, r);
  return Flow::next;
}

void decode_testp(Decoder& d) {
  d.in.u[0] =
      static_cast<uint8_t>(d.need_any({"finite", "infinite", "number", "notanumber", "normal", "subnormal"}));
  Type t = d.type_of({Type::f32, Type::f64});
  d.need_operands(2);
  d.in.dst = d.pred_dst(d.operand(0));
  d.in.src[0] = d.src(d.operand(1), t);
  d.in.fn = t == Type::f32 ? testp<float> : testp<double>;
}

constexpr Entry kEntries[] = {
    {"setp", decode_setp, "all comparisons, .and .or .xor, integers, f16 bf16 f32 f64 f16x2 bf16x2"},
    {"set", decode_set, "as setp, into integers or floating point"},
    {"selp", decode_selp, "16, 32, 64 bits"},
    {"slct", decode_slct, ".s32 .f32 selector"},
    {"testp", decode_testp, ".f32 .f64"},
};

}  // namespace

Family compare_family() { return {"comparison and selection", kEntries, std::size(kEntries), true}; }

}  // namespace tcgen05::vsm

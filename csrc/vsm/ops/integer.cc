// Integer arithmetic, logic, shifts and bit fields (PTX ISA 9.7.1, 9.7.2, 9.7.8).
#include <iterator>
#include <limits>

#include "vsm/ops/common.h"
#include "vsm/ops/families.h"

namespace tcgen05::vsm {
namespace {

template <class T>
using unsigned_t = std::make_unsigned_t<T>;
template <class T>
using double_t = std::conditional_t<
    sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
    std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>,
                       std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>>>;

// Wrapping arithmetic is done on unsigned values of at least 32 bits: no undefined overflow, no promotion.
template <class T>
using wrap_t = std::conditional_t<sizeof(T) <= 4, uint32_t, uint64_t>;

struct Add {
  template <class T>
  static T f(T a, T b) {
    return static_cast<T>(wrap_t<T>(a) + wrap_t<T>(b));
  }
};
struct Sub {
  template <class T>
  static T f(T a, T b) {
    return static_cast<T>(wrap_t<T>(a) - wrap_t<T>(b));
  }
};
struct MulLow {
  template <class T>
  static T f(T a, T b) {
    return static_cast<T>(wrap_t<T>(a) * wrap_t<T>(b));
  }
};
struct MulHigh {
  template <class T>
  static T f(T a, T b) {
    return static_cast<T>((double_t<T>(a) * double_t<T>(b)) >> (8 * sizeof(T)));
  }
};
struct MulWide {
  template <class T>
  static double_t<T> f(T a, T b) {
    return static_cast<double_t<T>>(double_t<T>(a) * double_t<T>(b));
  }
};
struct MadLow {
  template <class T>
  static T f(T a, T b, T c) {
    return Add::f<T>(MulLow::f<T>(a, b), c);
  }
};
struct MadHigh {
  template <class T>
  static T f(T a, T b, T c) {
    return Add::f<T>(MulHigh::f<T>(a, b), c);
  }
};
struct MadWide {
  template <class T>
  static double_t<T> f(T a, T b, double_t<T> c) {
    return Add::f<double_t<T>>(MulWide::f<T>(a, b), c);
  }
};
template <class Wide>
int32_t clamp32(Wide v) {
  return static_cast<int32_t>(v < INT32_MIN ? INT32_MIN : v > INT32_MAX ? INT32_MAX : v);
}
struct AddSat {
  template <class T>
  static int32_t f(int32_t a, int32_t b) {
    return clamp32(int64_t{a} + b);
  }
};
struct SubSat {
  template <class T>
  static int32_t f(int32_t a, int32_t b) {
    return clamp32(int64_t{a} - b);
  }
};
struct MadHighSat {
  template <class T>
  static int32_t f(int32_t a, int32_t b, int32_t c) {
    return clamp32((int64_t{a} * b >> 32) + c);
  }
};
// The 24-bit products use the low 24 bits, sign-extended for s32.
template <class T>
int64_t cut24(T v) {
  return std::is_signed_v<T> ? int64_t{static_cast<int32_t>(static_cast<uint32_t>(v) << 8) >> 8}
                             : int64_t{static_cast<uint32_t>(v) & 0xffffff};
}
struct Mul24Low {
  template <class T>
  static T f(T a, T b) {
    return static_cast<T>(cut24(a) * cut24(b));
  }
};
struct Mul24High {
  template <class T>
  static T f(T a, T b) {
    return static_cast<T>((cut24(a) * cut24(b)) >> 16);
  }
};
struct Mad24Low {
  template <class T>
  static T f(T a, T b, T c) {
    return Add::f<T>(Mul24Low::f<T>(a, b), c);
  }
};
struct Mad24High {
  template <class T>
  static T f(T a, T b, T c) {
    return Add::f<T>(Mul24High::f<T>(a, b), c);
  }
};
struct Mad24HighSat {
  template <class T>
  static int32_t f(int32_t a, int32_t b, int32_t c) {
    return clamp32(((cut24(a) * cut24(b)) >> 16) + c);
  }
};
struct Sad {
  template <class T>
  static T f(T a, T b, T c) {
    return Add::f<T>(c, a < b ? Sub::f<T>(b, a) : Sub::f<T>(a, b));
  }
};
// Division by zero gives all ones (what the chip's expansion returns; the ISA leaves it unspecified).
struct Div {
  template <class T>
  static T f(T a, T b) {
    if (b == 0) return static_cast<T>(-1);
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return Sub::f<T>(0, a);
    return static_cast<T>(a / b);
  }
};
struct Rem {
  template <class T>
  static T f(T a, T b) {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return 0;
    return static_cast<T>(a % b);
  }
};
struct Abs {
  template <class T>
  static T f(T a) {
    return a < 0 ? Sub::f<T>(0, a) : a;
  }
};
struct Neg {
  template <class T>
  static T f(T a) {
    return Sub::f<T>(0, a);
  }
};
struct Min {
  template <class T>
  static T f(T a, T b) {
    return a < b ? a : b;
  }
};
struct Max {
  template <class T>
  static T f(T a, T b) {
    return a > b ? a : b;
  }
};
struct MinRelu {
  template <class T>
  static T f(T a, T b) {
    return Max::f<T>(Min::f<T>(a, b), 0);
  }
};
struct MaxRelu {
  template <class T>
  static T f(T a, T b) {
    return Max::f<T>(Max::f<T>(a, b), 0);
  }
};
// Two 16-bit lanes in a register.
template <class Op, class Half>
struct Twice {
  template <class T>
  static uint32_t f(uint32_t a, uint32_t b) {
    auto half = [](uint32_t x, uint32_t y) {
      return static_cast<uint16_t>(Op::template f<Half>(static_cast<Half>(x), static_cast<Half>(y)));
    };
    return half(a, b) | static_cast<uint32_t>(half(a >> 16, b >> 16)) << 16;
  }
};

struct And {
  template <class T>
  static T f(T a, T b) {
    return a & b;
  }
};
struct Or {
  template <class T>
  static T f(T a, T b) {
    return a | b;
  }
};
struct Xor {
  template <class T>
  static T f(T a, T b) {
    return a ^ b;
  }
};
struct Not {
  template <class T>
  static T f(T a) {
    return static_cast<T>(~a);
  }
};
struct Cnot {
  template <class T>
  static T f(T a) {
    return a == 0;
  }
};
struct Shl {
  template <class T>
  static T f(T a, uint32_t n) {
    return n >= 8 * sizeof(T) ? T{0} : static_cast<T>(wrap_t<T>(a) << n);
  }
};
struct Shr {
  template <class T>
  static T f(T a, uint32_t n) {
    constexpr uint32_t kBits = 8 * sizeof(T);
    if (n >= kBits) return a < 0 ? static_cast<T>(-1) : T{0};
    return static_cast<T>(a >> n);
  }
};
struct Popc {
  template <class T>
  static uint32_t f(T a) {
    return static_cast<uint32_t>(__builtin_popcountll(a));
  }
};
struct Clz {
  template <class T>
  static uint32_t f(T a) {
    return a ? static_cast<uint32_t>(__builtin_clzll(a)) - (64 - 8 * sizeof(T)) : 8 * sizeof(T);
  }
};
struct Brev {
  template <class T>
  static T f(T a) {
    T r = 0;
    for (size_t i = 0; i < 8 * sizeof(T); ++i) r = static_cast<T>(r << 1 | (a >> i & 1));
    return r;
  }
};
struct Bfind {
  template <class T>
  static uint32_t f(T a) {
    unsigned_t<T> v = static_cast<unsigned_t<T>>(a < 0 ? ~a : a);
    return v ? 63 - static_cast<uint32_t>(__builtin_clzll(v)) : 0xffffffff;
  }
};
struct BfindShift {
  template <class T>
  static uint32_t f(T a) {
    uint32_t p = Bfind::f<T>(a);
    return p == 0xffffffff ? p : static_cast<uint32_t>(8 * sizeof(T)) - 1 - p;
  }
};

struct Bfe {
  template <class T>
  static T f(T a, uint32_t pos, uint32_t len) {
    constexpr uint32_t kBits = 8 * sizeof(T);
    pos &= 0xff;
    len &= 0xff;
    bool sign = false;
    if constexpr (std::is_signed_v<T>) {
      uint32_t at = std::min(pos + len - 1, kBits - 1);
      sign = len && (static_cast<unsigned_t<T>>(a) >> at & 1);
    }
    unsigned_t<T> r = sign ? static_cast<unsigned_t<T>>(-1) : 0;
    for (uint32_t i = 0; i < std::min(len, kBits); ++i) {
      bool bit = pos + i < kBits ? static_cast<unsigned_t<T>>(a) >> (pos + i) & 1 : sign;
      r = static_cast<unsigned_t<T>>((r & ~(unsigned_t<T>{1} << i)) | static_cast<unsigned_t<T>>(bit) << i);
    }
    return static_cast<T>(r);
  }
};

template <class T>
Flow bfe(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<slot_t<T>>(in.dst);
  auto* a = w.in<slot_t<T>>(in.src[0]);
  auto *b = w.in<uint32_t>(in.src[1]), *c = w.in<uint32_t>(in.src[2]);
  for_lanes(m, [&](int i) {
    uint32_t pos = b[i] & 0xff, len = c[i] & 0xff;
    constexpr uint32_t kBits = 8 * sizeof(T);
    if (len && pos + len <= kBits) {  // the common case: two shifts
      d[i] = to_slot<T>(static_cast<T>(static_cast<T>(a[i] << (kBits - pos - len)) >> (kBits - len)));
    } else {
      d[i] = to_slot<T>(Bfe::f<T>(static_cast<T>(a[i]), pos, len));
    }
  });
  return Flow::next;
}

template <class T>
Flow bfi(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<slot_t<T>>(in.dst);
  auto *a = w.in<slot_t<T>>(in.src[0]), *b = w.in<slot_t<T>>(in.src[1]);
  auto *p = w.in<uint32_t>(in.src[2]), *l = w.in<uint32_t>(in.src[3]);
  for_lanes(m, [&](int i) {
    constexpr uint32_t kBits = 8 * sizeof(T);
    uint32_t pos = p[i] & 0xff, len = l[i] & 0xff;
    slot_t<T> field = pos >= kBits || !len ? 0 : (len >= kBits ? ~T{0} : (T{1} << len) - 1) << pos;
    slot_t<T> moved = pos >= kBits ? 0 : a[i] << pos;
    d[i] = (b[i] & ~field) | (moved & field);
  });
  return Flow::next;
}

template <bool kClamp>
Flow bmsk(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<uint32_t>(in.dst);
  auto *a = w.in<uint32_t>(in.src[0]), *b = w.in<uint32_t>(in.src[1]);
  for_lanes(m, [&](int i) {
    uint32_t pos = kClamp ? std::min(a[i], 32u) : a[i] & 31, len = kClamp ? std::min(b[i], 32u) : b[i] & 31;
    uint64_t ones = (uint64_t{1} << len) - 1;
    d[i] = pos > 31 ? 0 : static_cast<uint32_t>(ones << pos);
  });
  return Flow::next;
}

template <class T, bool kClamp>
Flow szext(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<uint32_t>(in.dst);
  auto *a = w.in<uint32_t>(in.src[0]), *b = w.in<uint32_t>(in.src[1]);
  for_lanes(m, [&](int i) {
    uint32_t n = kClamp ? std::min(b[i], 32u) : b[i] & 31;
    d[i] = n == 0 ? 0 : n == 32 ? a[i] : static_cast<uint32_t>(static_cast<T>(a[i] << (32 - n)) >> (32 - n));
  });
  return Flow::next;
}

template <bool kLeft, bool kClamp>
Flow shf(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<uint32_t>(in.dst);
  auto *a = w.in<uint32_t>(in.src[0]), *b = w.in<uint32_t>(in.src[1]), *c = w.in<uint32_t>(in.src[2]);
  for_lanes(m, [&](int i) {
    uint32_t n = kClamp ? std::min(c[i], 32u) : c[i] & 31;
    uint64_t both = uint64_t{b[i]} << 32 | a[i];
    d[i] = static_cast<uint32_t>(kLeft ? both << n >> 32 : both >> n);
  });
  return Flow::next;
}

Flow lop3(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<uint32_t>(in.dst);
  auto *a = w.in<uint32_t>(in.src[0]), *b = w.in<uint32_t>(in.src[1]), *c = w.in<uint32_t>(in.src[2]);
  uint32_t lut[8];
  for (int i = 0; i < 8; ++i) lut[i] = in.imm >> i & 1 ? ~0u : 0u;
  Mask any = 0;
  for_lanes(m, [&](int i) {
    uint32_t x = a[i], y = b[i], z = c[i];
    d[i] = (lut[0] & ~x & ~y & ~z) | (lut[1] & ~x & ~y & z) | (lut[2] & ~x & y & ~z) | (lut[3] & ~x & y & z) |
           (lut[4] & x & ~y & ~z) | (lut[5] & x & ~y & z) | (lut[6] & x & y & ~z) | (lut[7] & x & y & z);
  });
  if (in.dst2 != kNoRef) {
    for (int i = 0; i < 32; ++i) any |= static_cast<Mask>(d[i] != 0) << i;
    Mask q = w.predicate(in.src[3]) ^ (in.u[1] ? ~Mask{0} : 0);
    w.set_predicate(in.dst2, m, in.u[0] ? any & q : any | q);
  }
  return Flow::next;
}

uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  uint64_t both = uint64_t{b} << 32 | a;
  uint32_t r = 0;
  for (int k = 0; k < 4; ++k) {
    uint32_t s = selector >> (4 * k) & 15;
    uint32_t byte = static_cast<uint32_t>(both >> (8 * (s & 7)) & 0xff);
    if (s & 8) byte = byte & 0x80 ? 0xff : 0;
    r |= byte << (8 * k);
  }
  return r;
}

template <int kMode>  // 0: selector; then .f4e .b4e .rc8 .ecl .ecr .rc16 (PTX ISA 9.7.8, table of prmt)
Flow prmt(Warp& w, const Instr& in, Mask m) {
  static constexpr uint16_t kSelectors[7][4] = {{},
                                                {0x3210, 0x4321, 0x5432, 0x6543},
                                                {0x5670, 0x6701, 0x7012, 0x0123},
                                                {0x0000, 0x1111, 0x2222, 0x3333},
                                                {0x3210, 0x3211, 0x3222, 0x3333},
                                                {0x0000, 0x1110, 0x2210, 0x3210},
                                                {0x1010, 0x3232, 0x1010, 0x3232}};
  auto* d = w.out<uint32_t>(in.dst);
  auto *a = w.in<uint32_t>(in.src[0]), *b = w.in<uint32_t>(in.src[1]), *c = w.in<uint32_t>(in.src[2]);
  for_lanes(m, [&](int i) { d[i] = permute_bytes(a[i], b[i], kMode ? kSelectors[kMode][c[i] & 3] : c[i]); });
  return Flow::next;
}

Flow fns(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<uint32_t>(in.dst);
  auto *mask = w.in<uint32_t>(in.src[0]), *base = w.in<uint32_t>(in.src[1]),
       *offset = w.in<uint32_t>(in.src[2]);
  for_lanes(m, [&](int i) {
    int step = static_cast<int32_t>(offset[i]) < 0 ? -1 : 1;
    int64_t left = static_cast<int32_t>(offset[i]);
    left = left == 0 ? 1 : left * step;
    int at = static_cast<int>(base[i] & 31);
    bool zero = offset[i] == 0;
    d[i] = 0xffffffff;
    for (; at >= 0 && at < 32; at += step) {
      bool set = mask[i] >> at & 1;
      if (set && --left == 0) {
        d[i] = static_cast<uint32_t>(at);
        break;
      }
      if (zero) break;
    }
  });
  return Flow::next;
}

template <class A, class B>
Flow dp4a(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<uint32_t>(in.dst);
  auto *a = w.in<uint32_t>(in.src[0]), *b = w.in<uint32_t>(in.src[1]), *c = w.in<uint32_t>(in.src[2]);
  for_lanes(m, [&](int i) {
    int64_t sum = c[i];
    for (int k = 0; k < 4; ++k)
      sum += int64_t{static_cast<A>(a[i] >> (8 * k))} * static_cast<B>(b[i] >> (8 * k));
    d[i] = static_cast<uint32_t>(sum);
  });
  return Flow::next;
}

template <class A, class B, bool kHigh>
Flow dp2a(Warp& w, const Instr& in, Mask m) {
  using A16 = std::conditional_t<std::is_signed_v<A>, int16_t, uint16_t>;
  auto* d = w.out<uint32_t>(in.dst);
  auto *a = w.in<uint32_t>(in.src[0]), *b = w.in<uint32_t>(in.src[1]), *c = w.in<uint32_t>(in.src[2]);
  for_lanes(m, [&](int i) {
    int64_t sum = c[i];
    for (int k = 0; k < 2; ++k)
      sum += int64_t{static_cast<A16>(a[i] >> (16 * k))} * static_cast<B>(b[i] >> (8 * k + (kHigh ? 16 : 0)));
    d[i] = static_cast<uint32_t>(sum);
  });
  return Flow::next;
}

// add/sub with carry. `u[0]`: reads the carry, `u[1]`: writes it. Borrow is the carry of a - b.
template <class T, bool kSub>
Flow carry(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<slot_t<T>>(in.dst);
  auto *a = w.in<slot_t<T>>(in.src[0]), *b = w.in<slot_t<T>>(in.src[1]);
  Mask out = 0;
  for_lanes(m, [&](int i) {
    unsigned __int128 x = a[i], y = b[i], c = in.u[0] ? w.carry >> i & 1 : 0;
    unsigned __int128 r = kSub ? x - y - c : x + y + c;
    out |= static_cast<Mask>(r >> (8 * sizeof(T)) & 1) << i;
    d[i] = static_cast<slot_t<T>>(r);
  });
  if (in.u[1]) w.carry = (w.carry & ~m) | out;
  return Flow::next;
}

template <class T, bool kHigh>
Flow mad_carry(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<slot_t<T>>(in.dst);
  auto *a = w.in<slot_t<T>>(in.src[0]), *b = w.in<slot_t<T>>(in.src[1]), *s = w.in<slot_t<T>>(in.src[2]);
  Mask out = 0;
  for_lanes(m, [&](int i) {
    auto product = double_t<T>(static_cast<T>(a[i])) * double_t<T>(static_cast<T>(b[i]));
    slot_t<T> part = static_cast<slot_t<T>>(kHigh ? product >> (8 * sizeof(T)) : product);
    unsigned __int128 c = in.u[0] ? w.carry >> i & 1 : 0;
    unsigned __int128 r = static_cast<unsigned __int128>(part) + s[i] + c;
    out |= static_cast<Mask>(r >> (8 * sizeof(T)) & 1) << i;
    d[i] = static_cast<slot_t<T>>(r);
  });
  if (in.u[1]) w.carry = (w.carry & ~m) | out;
  return Flow::next;
}

// ---- decoding ----

template <class Op>
Handler packed16(Type t) {
  return t == Type::u16x2   ? binary<Twice<Op, uint16_t>, uint32_t>
         : t == Type::s16x2 ? binary<Twice<Op, int16_t>, uint32_t>
                            : nullptr;
}

template <bool kSub>
void decode_carry(Decoder& d) {
  d.in.u[0] = d.root() != "add" && d.root() != "sub";
  d.in.u[1] = d.take("cc");
  Type t = d.type_of({Type::u32, Type::s32, Type::u64, Type::s64, Type::b32, Type::b64});
  simple_operands(d, t, 2);
  d.in.fn = bits_of(t) == 32 ? carry<uint32_t, kSub> : carry<uint64_t, kSub>;
}

template <class Op, class Saturating, bool kSub>
void decode_add(Decoder& d) {
  Type t;
  Decoder probe = d;
  if (probe.take("cc")) return decode_carry<kSub>(d);
  t = probe.type();
  if (is_real(t) || (kind_of(t) == TypeKind::packed && t != Type::u16x2 && t != Type::s16x2))
    return decode_float_arithmetic(d, t);
  t = d.type();
  if (d.take("sat")) {
    if (t != Type::s32) d.fail(".sat is for .s32 only");
    simple_operands(d, t, 2);
    d.in.fn = binary<Saturating, int32_t>;
    return;
  }
  simple_operands(d, t, 2);
  Handler packed = packed16<Op>(t);
  set_handler(d, packed ? packed : for_integer<Binary, Op>(t), t);
}

bool hand_over_float(Decoder& d) {
  Decoder probe = d;
  Type t = probe.type();
  bool integer = is_integer(t) || t == Type::u16x2 || t == Type::s16x2 || is_bits(t);
  if (!integer) decode_float_arithmetic(d, t);
  return !integer;
}

void decode_mul(Decoder& d) {
  if (hand_over_float(d)) return;
  int part = d.need_any({"lo", "hi", "wide"});
  Type t = d.type_of({Type::u16, Type::s16, Type::u32, Type::s32, Type::u64, Type::s64});
  if (part < 2) {
    simple_operands(d, t, 2);
    return set_handler(d, part ? for_integer<Binary, MulHigh>(t) : for_integer<Binary, MulLow>(t), t);
  }
  d.need_operands(3);
  Type w = bits_of(t) == 16 ? Type::b32 : bits_of(t) == 32 ? Type::b64 : Type::b128;
  if (w == Type::b128) d.fail("mul.wide is for 16 and 32-bit types");
  d.in.dst = d.dst(d.operand(0), w);
  d.in.src[0] = d.src(d.operand(1), t);
  d.in.src[1] = d.src(d.operand(2), t);
  d.in.fn = t == Type::u16   ? binary<MulWide, uint16_t, uint32_t>
            : t == Type::s16 ? binary<MulWide, int16_t, int32_t>
            : t == Type::u32 ? binary<MulWide, uint32_t, uint64_t>
                             : binary<MulWide, int32_t, int64_t>;
}

void decode_mad_carry(Decoder& d) {
  d.in.u[0] = d.root() == "madc";
  d.in.u[1] = d.take("cc");
  int part = d.need_any({"lo", "hi"});
  Type t = d.type_of({Type::u32, Type::s32, Type::u64, Type::s64});
  simple_operands(d, t, 3);
  switch (t) {
    case Type::u32:
      d.in.fn = part ? mad_carry<uint32_t, true> : mad_carry<uint32_t, false>;
      break;
    case Type::s32:
      d.in.fn = part ? mad_carry<int32_t, true> : mad_carry<int32_t, false>;
      break;
    case Type::u64:
      d.in.fn = part ? mad_carry<uint64_t, true> : mad_carry<uint64_t, false>;
      break;
    default:
      d.in.fn = part ? mad_carry<int64_t, true> : mad_carry<int64_t, false>;
  }
}

void decode_mad(Decoder& d) {
  if (hand_over_float(d)) return;
  Decoder probe = d;
  if (probe.take("cc")) return decode_mad_carry(d);
  int part = d.need_any({"lo", "hi", "wide"});
  bool sat = d.take("sat");
  Type t = d.type_of({Type::u16, Type::s16, Type::u32, Type::s32, Type::u64, Type::s64});
  if (sat) {
    if (t != Type::s32 || part != 1) d.fail(".sat is for mad.hi.sat.s32 only");
    simple_operands(d, t, 3);
    d.in.fn = ternary<MadHighSat, int32_t>;
  } else if (part < 2) {
    simple_operands(d, t, 3);
    set_handler(d, part ? for_integer<Ternary, MadHigh>(t) : for_integer<Ternary, MadLow>(t), t);
  } else {
    d.need_operands(4);
    if (bits_of(t) == 64) d.fail("mad.wide is for 16 and 32-bit types");
    Type w = bits_of(t) == 16 ? Type::b32 : Type::b64;
    d.in.dst = d.dst(d.operand(0), w);
    d.in.src[0] = d.src(d.operand(1), t);
    d.in.src[1] = d.src(d.operand(2), t);
    d.in.src[2] = d.src(d.operand(3), w);
    d.in.fn = t == Type::u16   ? ternary<MadWide, uint16_t, uint32_t>
              : t == Type::s16 ? ternary<MadWide, int16_t, int32_t>
              : t == Type::u32 ? ternary<MadWide, uint32_t, uint64_t>
                               : ternary<MadWide, int32_t, int64_t>;
  }
}

void decode_mul24(Decoder& d) {
  bool mad = d.root() == "mad24";
  bool high = d.need_any({"lo", "hi"});
  bool sat = mad && d.take("sat");
  Type t = d.type_of({Type::u32, Type::s32});
  bool s = t == Type::s32;
  simple_operands(d, t, mad ? 3 : 2);
  if (sat && (!high || !s)) d.fail(".sat is for mad24.hi.sat.s32 only");
  if (!mad) {
    d.in.fn = high ? (s ? binary<Mul24High, int32_t> : binary<Mul24High, uint32_t>)
                   : (s ? binary<Mul24Low, int32_t> : binary<Mul24Low, uint32_t>);
  } else if (sat) {
    d.in.fn = ternary<Mad24HighSat, int32_t>;
  } else {
    d.in.fn = high ? (s ? ternary<Mad24High, int32_t> : ternary<Mad24High, uint32_t>)
                   : (s ? ternary<Mad24Low, int32_t> : ternary<Mad24Low, uint32_t>);
  }
}

template <class Op>
void decode_binary(Decoder& d) {
  if (hand_over_float(d)) return;
  Type t = d.type();
  simple_operands(d, t, 2);
  set_handler(d, for_integer<Binary, Op>(t), t);
}

template <class Op, class Relu>
void decode_minmax(Decoder& d) {
  if (hand_over_float(d)) return;
  bool relu = d.take("relu");
  Type t = d.type();
  simple_operands(d, t, 2);
  if (relu && t != Type::s32 && t != Type::s16x2) d.fail(".relu is for .s32 and .s16x2 only");
  Handler packed = relu ? packed16<Relu>(t) : packed16<Op>(t);
  set_handler(d, packed ? packed : relu ? for_integer<Binary, Relu>(t) : for_integer<Binary, Op>(t), t);
}

template <class Op>
void decode_unary(Decoder& d) {
  if (hand_over_float(d)) return;
  Type t = d.type_of({Type::s16, Type::s32, Type::s64});
  simple_operands(d, t, 1);
  set_handler(d, for_integer<Unary, Op>(t), t);
}

void decode_sad(Decoder& d) {
  Type t = d.type();
  simple_operands(d, t, 3);
  set_handler(d, for_integer<Ternary, Sad>(t), t);
}

// Predicates are masks of lanes, so their logic is one operation.
template <class Op>
Flow predicate_logic(Warp& w, const Instr& in, Mask m) {
  Mask a = w.predicate(in.src[0]) ^ (in.u[0] ? ~Mask{0} : 0);
  Mask b = in.src[1] == kNoRef ? 0 : w.predicate(in.src[1]) ^ (in.u[1] ? ~Mask{0} : 0);
  w.set_predicate(in.dst, m, Op::template f<Mask>(a, b));
  return Flow::next;
}

template <class Op>
void decode_logic(Decoder& d) {
  Type t = d.type_of({Type::pred, Type::b16, Type::b32, Type::b64});
  if (t == Type::pred) {
    d.need_operands(3);
    d.in.dst = d.pred_dst(d.operand(0));
    for (size_t i = 0; i < 2; ++i) {
      bool negated = false;
      d.in.src[i] = d.pred_src(d.operand(i + 1), &negated);
      d.in.u[i] = negated;
    }
    d.in.fn = predicate_logic<Op>;
    return;
  }
  simple_operands(d, t, 2);
  set_handler(d, for_bits<Binary, Op>(t), t);
}

struct NotFirst {
  template <class T>
  static T f(T a, T) {
    return ~a;
  }
};

void decode_not(Decoder& d) {
  Type t = d.type_of({Type::pred, Type::b16, Type::b32, Type::b64});
  if (t == Type::pred) {
    d.need_operands(2);
    bool negated = false;
    d.in.dst = d.pred_dst(d.operand(0));
    d.in.src[0] = d.pred_src(d.operand(1), &negated);
    d.in.u[0] = negated;
    d.in.fn = predicate_logic<NotFirst>;
    return;
  }
  simple_operands(d, t, 1);
  set_handler(d, for_bits<Unary, Not>(t), t);
}

void decode_cnot(Decoder& d) {
  Type t = d.type_of({Type::b16, Type::b32, Type::b64});
  simple_operands(d, t, 1);
  set_handler(d, for_bits<Unary, Cnot>(t), t);
}

template <class Op>
void decode_shift(Decoder& d) {
  Type t = d.type();
  if (!is_bits(t) && (d.root() == "shl" || !is_integer(t)))
    d.fail("type ." + std::string(name_of(t)) + " is not allowed");
  d.need_operands(3);
  d.in.dst = d.dst(d.operand(0), t);
  d.in.src[0] = d.src(d.operand(1), t);
  d.in.src[1] = d.src(d.operand(2), Type::u32);
  set_handler(d, is_signed(t) ? for_integer<WithCount, Op>(t) : for_bits<WithCount, Op>(t), t);
}

template <class Op>
void decode_count(Decoder& d) {
  Type t = d.type_of({Type::b32, Type::b64});
  d.need_operands(2);
  d.in.dst = d.dst(d.operand(0), Type::u32);
  d.in.src[0] = d.src(d.operand(1), t);
  d.in.fn = t == Type::b32 ? unary<Op, uint32_t> : unary<Op, uint64_t, uint32_t>;
}

void decode_brev(Decoder& d) {
  Type t = d.type_of({Type::b32, Type::b64});
  simple_operands(d, t, 1);
  set_handler(d, for_bits<Unary, Brev>(t), t);
}

template <class Op>
Handler bfind_handler(Type t) {
  switch (t) {
    case Type::u32:
      return unary<Op, uint32_t>;
    case Type::s32:
      return unary<Op, int32_t, uint32_t>;
    case Type::u64:
      return unary<Op, uint64_t, uint32_t>;
    default:
      return unary<Op, int64_t, uint32_t>;
  }
}

void decode_bfind(Decoder& d) {
  bool shift = d.take("shiftamt");
  Type t = d.type_of({Type::u32, Type::s32, Type::u64, Type::s64});
  d.need_operands(2);
  d.in.dst = d.dst(d.operand(0), Type::u32);
  d.in.src[0] = d.src(d.operand(1), t);
  d.in.fn = shift ? bfind_handler<BfindShift>(t) : bfind_handler<Bfind>(t);
}

void decode_bfe(Decoder& d) {
  Type t = d.type_of({Type::u32, Type::s32, Type::u64, Type::s64});
  d.need_operands(4);
  d.in.dst = d.dst(d.operand(0), t);
  d.in.src[0] = d.src(d.operand(1), t);
  d.in.src[1] = d.src(d.operand(2), Type::u32);
  d.in.src[2] = d.src(d.operand(3), Type::u32);
  d.in.fn = t == Type::u32   ? bfe<uint32_t>
            : t == Type::s32 ? bfe<int32_t>
            : t == Type::u64 ? bfe<uint64_t>
                             : bfe<int64_t>;
}

void decode_bfi(Decoder& d) {
  Type t = d.type_of({Type::b32, Type::b64});
  d.need_operands(5);
  d.in.dst = d.dst(d.operand(0), t);
  d.in.src[0] = d.src(d.operand(1), t);
  d.in.src[1] = d.src(d.operand(2), t);
  d.in.src[2] = d.src(d.operand(3), Type::u32);
  d.in.src[3] = d.src(d.operand(4), Type::u32);
  d.in.fn = t == Type::b32 ? bfi<uint32_t> : bfi<uint64_t>;
}

void decode_bmsk(Decoder& d) {
  bool clamp = d.need_any({"clamp", "wrap"}) == 0;
  simple_operands(d, d.type_of({Type::b32}), 2);
  d.in.fn = clamp ? bmsk<true> : bmsk<false>;
}

void decode_szext(Decoder& d) {
  bool clamp = d.need_any({"clamp", "wrap"}) == 0;
  Type t = d.type_of({Type::u32, Type::s32});
  simple_operands(d, t, 2);
  d.in.fn = t == Type::u32 ? (clamp ? szext<uint32_t, true> : szext<uint32_t, false>)
                           : (clamp ? szext<int32_t, true> : szext<int32_t, false>);
}

void decode_shf(Decoder& d) {
  bool left = d.need_any({"l", "r"}) == 0;
  bool clamp = d.need_any({"clamp", "wrap"}) == 0;
  simple_operands(d, d.type_of({Type::b32}), 3);
  d.in.fn =
      left ? (clamp ? shf<true, true> : shf<true, false>) : (clamp ? shf<false, true> : shf<false, false>);
}

void decode_lop3(Decoder& d) {
  int combine = d.take_any({"or", "and"});
  d.type_of({Type::b32});
  d.need_operands(combine < 0 ? 5 : 6);
  const Operand& out = d.operand(0);
  if (combine >= 0) {
    if (out.kind != Operand::Kind::pair) d.fail("needs a destination d|p");
    d.in.dst = d.dst_or_sink(out.list[0], Type::b32);
    d.in.dst2 = d.pred_dst(out.list[1]);
    bool negated = false;
    d.in.src[3] = d.pred_src(d.operand(5), &negated);
    d.in.u[0] = combine == 1;
    d.in.u[1] = negated;
  } else {
    d.in.dst = d.dst(out, Type::b32);
  }
  for (size_t i = 0; i < 3; ++i) d.in.src[i] = d.src(d.operand(i + 1), Type::b32);
  d.in.imm = d.constant(d.operand(4), "the look-up table of lop3");
  if (d.in.imm > 255)
    d.fail("the look-up table of lop3 is " + std::to_string(d.in.imm) + ", allowed: 0 to 255");
  d.in.fn = lop3;
}

void decode_prmt(Decoder& d) {
  static constexpr Handler kModes[] = {prmt<1>, prmt<2>, prmt<3>, prmt<4>, prmt<5>, prmt<6>};
  d.type_of({Type::b32});
  int mode = d.take_any({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"});
  simple_operands(d, Type::b32, 3);
  d.in.fn = mode < 0 ? prmt<0> : kModes[mode];
}

void decode_fns(Decoder& d) {
  d.type_of({Type::b32});
  simple_operands(d, Type::b32, 3);
  d.in.fn = fns;
}

void decode_dp(Decoder& d) {
  bool four = d.root() == "dp4a";
  bool high = !four && d.need_any({"lo", "hi"}) == 1;
  bool sa = is_signed(d.type_of({Type::u32, Type::s32})), sb = is_signed(d.type_of({Type::u32, Type::s32}));
  simple_operands(d, Type::b32, 3);
  static constexpr Handler k4[] = {dp4a<uint8_t, uint8_t>, dp4a<uint8_t, int8_t>, dp4a<int8_t, uint8_t>,
                                   dp4a<int8_t, int8_t>};
  static constexpr Handler k2[] = {dp2a<uint8_t, uint8_t, false>, dp2a<uint8_t, int8_t, false>,
                                   dp2a<int8_t, uint8_t, false>,  dp2a<int8_t, int8_t, false>,
                                   dp2a<uint8_t, uint8_t, true>,  dp2a<uint8_t, int8_t, true>,
                                   dp2a<int8_t, uint8_t, true>,   dp2a<int8_t, int8_t, true>};
  int row = 2 * sa + sb;
  d.in.fn = four ? k4[row] : k2[row + 4 * high];
}

constexpr Entry kEntries[] = {
    {"add", decode_add<Add, AddSat, false>,
     "{.sat}.s32 .u16 .s16 .u32 .u64 .s64 .u16x2 .s16x2; .cc; floating point"},
    {"addc", decode_carry<false>, "{.cc}.u32 .s32 .u64 .s64"},
    {"sub", decode_add<Sub, SubSat, true>, "as add"},
    {"subc", decode_carry<true>, "{.cc}.u32 .s32 .u64 .s64"},
    {"mul", decode_mul, ".lo .hi .wide; 16, 32, 64-bit integers; floating point"},
    {"mad", decode_mad, ".lo .hi .wide {.sat} {.cc}; floating point"},
    {"madc", decode_mad_carry, ".lo .hi {.cc}"},
    {"mul24", decode_mul24, ".lo .hi .u32 .s32"},
    {"mad24", decode_mul24, ".lo .hi {.sat} .u32 .s32"},
    {"sad", decode_sad, "16, 32, 64-bit integers"},
    {"div", decode_binary<Div>, "integers; floating point"},
    {"rem", decode_binary<Rem>, "integers"},
    {"abs", decode_unary<Abs>, "signed integers; floating point"},
    {"neg", decode_unary<Neg>, "signed integers; floating point"},
    {"min", decode_minmax<Min, MinRelu>, "{.relu} integers .u16x2 .s16x2; floating point"},
    {"max", decode_minmax<Max, MaxRelu>, "{.relu} integers .u16x2 .s16x2; floating point"},
    {"popc", decode_count<Popc>, ".b32 .b64"},
    {"clz", decode_count<Clz>, ".b32 .b64"},
    {"brev", decode_brev, ".b32 .b64"},
    {"bfind", decode_bfind, "{.shiftamt}.u32 .s32 .u64 .s64"},
    {"fns", decode_fns, ".b32"},
    {"bfe", decode_bfe, ".u32 .s32 .u64 .s64"},
    {"bfi", decode_bfi, ".b32 .b64"},
    {"bmsk", decode_bmsk, ".clamp .wrap .b32"},
    {"szext", decode_szext, ".clamp .wrap .u32 .s32"},
    {"dp4a", decode_dp, ".u32 .s32 each"},
    {"dp2a", decode_dp, ".lo .hi .u32 .s32 each"},
    {"and", decode_logic<And>, ".pred .b16 .b32 .b64"},
    {"or", decode_logic<Or>, ".pred .b16 .b32 .b64"},
    {"xor", decode_logic<Xor>, ".pred .b16 .b32 .b64"},
    {"not", decode_not, ".pred .b16 .b32 .b64"},
    {"cnot", decode_cnot, ".b16 .b32 .b64"},
    {"lop3", decode_lop3, "{.or .and}.b32"},
    {"shf", decode_shf, ".l .r .clamp .wrap .b32"},
    {"shl", decode_shift<Shl>, ".b16 .b32 .b64"},
    {"shr", decode_shift<Shr>, "bits, unsigned and signed"},
    {"prmt", decode_prmt, ".b32 and its six modes"},
};

}  // namespace

Family integer_family() { return {"integer, logic and bit fields", kEntries, std::size(kEntries), true}; }

}  // namespace tcgen05::vsm

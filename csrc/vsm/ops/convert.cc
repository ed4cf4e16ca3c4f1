// cvt between scalar types, and cvt.pack (PTX ISA 9.7.9.21, 9.7.9.22).
#include "vsm/ops/convert.h"

#include <iterator>
#include <limits>

#include "vsm/ops/common.h"
#include "vsm/ops/families.h"

namespace tcgen05::vsm {
namespace {

using Kind = Operand::Kind;

// Stores an integer of type T into a register of `bits` bits: extended by its own sign, cut to the register.
template <class T>
slot_t<T> integer_slot(T v, uint8_t bits) {
  using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
  uint64_t x = static_cast<uint64_t>(static_cast<Wide>(v));
  return static_cast<slot_t<T>>(bits < 64 ? x & ((uint64_t{1} << bits) - 1) : x);
}

// ---- integer to integer ----

// u[0]: bits above the source's type in its slot, u[1]: the same of the destination; imm: bits of its
// register.
template <class S, class D, bool kSourceSigned, bool kSigned>
Flow extend(Warp& w, const Instr& in, Mask m) {
  using From = std::conditional_t<kSourceSigned, std::make_signed_t<S>, S>;
  using Wide = std::conditional_t<kSourceSigned, std::make_signed_t<D>, D>;
  using To = std::conditional_t<kSigned, std::make_signed_t<D>, D>;
  auto* d = w.out<D>(in.dst);
  auto* a = w.in<S>(in.src[0]);
  const int from = in.u[0], to = in.u[1];
  const D keep = static_cast<D>(in.imm);
  for_lanes(m, [&](int i) {
    D v = static_cast<D>(static_cast<Wide>(static_cast<From>(a[i] << from) >> from));
    d[i] = static_cast<D>(static_cast<To>(v << to) >> to) & keep;
  });
  return Flow::next;
}

// The usual case: both types fill their slots.
template <class S, class D>
Flow extend_whole(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<std::make_unsigned_t<D>>(in.dst);
  auto* a = w.in<std::make_unsigned_t<S>>(in.src[0]);
  for_lanes(
      m, [&](int i) { d[i] = static_cast<std::make_unsigned_t<D>>(static_cast<D>(static_cast<S>(a[i]))); });
  return Flow::next;
}

template <class S, class D>
Handler extend_handler(bool source_signed, bool is_signed) {
  if (source_signed) return is_signed ? extend<S, D, true, true> : extend<S, D, true, false>;
  return is_signed ? extend<S, D, false, true> : extend<S, D, false, false>;
}

// From a slot of `from_bits` (32 or 64) that holds type `from`, into a register of `register_bits`.
void set_extend(Instr& in, Type from, int from_bits, Type to, int register_bits) {
  const int to_bits = register_bits == 64 ? 64 : 32;
  in.u[0] = static_cast<uint8_t>(from_bits - bits_of(from));
  in.u[1] = static_cast<uint8_t>(to_bits - bits_of(to));
  in.imm = register_bits == 64 ? ~uint64_t{0} : (uint64_t{1} << register_bits) - 1;
  const bool a = is_signed(from), b = is_signed(to);
  if (in.u[0] == 0 && in.u[1] == 0) {
    in.fn = from_bits == 64
                ? (to_bits == 32 ? extend_whole<uint64_t, uint32_t> : extend_whole<uint64_t, uint64_t>)
            : to_bits == 32 ? extend_whole<uint32_t, uint32_t>
            : a             ? extend_whole<int32_t, int64_t>
                            : extend_whole<uint32_t, uint64_t>;
    return;
  }
  in.fn = from_bits == 32 ? (to_bits == 32 ? extend_handler<uint32_t, uint32_t>(a, b)
                                           : extend_handler<uint32_t, uint64_t>(a, b))
                          : (to_bits == 32 ? extend_handler<uint64_t, uint32_t>(a, b)
                                           : extend_handler<uint64_t, uint64_t>(a, b));
}

template <class A, class D>
Flow clamp_integer(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<slot_t<D>>(in.dst);
  auto* a = w.in<slot_t<A>>(in.src[0]);
  for_lanes(m, [&](int i) {
    const A v = from_slot<A>(a[i]);
    D r = static_cast<D>(v);
    if (std::is_signed_v<A> && v < 0) {
      const int64_t least = std::is_signed_v<D> ? static_cast<int64_t>(std::numeric_limits<D>::min()) : 0;
      if (static_cast<int64_t>(v) < least) r = static_cast<D>(least);
    } else if (static_cast<uint64_t>(v) > static_cast<uint64_t>(std::numeric_limits<D>::max())) {
      r = std::numeric_limits<D>::max();
    }
    d[i] = integer_slot(r, in.u[kRegisterBitsField]);
  });
  return Flow::next;
}

// ---- integer to float ----

template <class A, class F>
Flow integer_to_float(Warp& w, const Instr& in, Mask m) {
  using S = std::conditional_t<F::bits == 64, uint64_t, uint32_t>;
  auto* d = w.out<S>(in.dst);
  auto* a = w.in<slot_t<A>>(in.src[0]);
  const auto mode = static_cast<Rounding>(in.u[kRoundingField]);
  const bool saturate = in.u[kFlagsField] & kSaturate;
  for_lanes(m, [&](int i) {
    const A v = from_slot<A>(a[i]);
    const bool negative = std::is_signed_v<A> && v < 0;
    uint64_t magnitude = static_cast<uint64_t>(v);
    if (negative) magnitude = -magnitude;
    if (saturate) magnitude = negative ? 0 : std::min<uint64_t>(magnitude, 1);
    d[i] = static_cast<S>(round_number<F>(negative && magnitude, magnitude, 0, mode, false));
  });
  return Flow::next;
}

// The usual case: the processor rounds to nearest.
template <class A, class R>
Flow integer_to_native(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<slot_t<R>>(in.dst);
  auto* a = w.in<slot_t<A>>(in.src[0]);
  for_lanes(m, [&](int i) { d[i] = to_slot<R>(static_cast<R>(from_slot<A>(a[i]))); });
  return Flow::next;
}

// ---- float to integer ----

// Rounds to an integral value; to nearest even by the processor's default mode. Numbers from 2^52 on have no
// fraction, the others fit an integer.
double integral(double v, Integral how) {
  if (how == Integral::none || !(std::fabs(v) < 0x1p52)) return v;
  double r = static_cast<double>(static_cast<int64_t>(v));
  if (how == Integral::nearest) r = std::fabs(v) + 0x1p52 - 0x1p52;
  if (how == Integral::down) r -= r > v;
  if (how == Integral::up) r += r < v;
  return std::copysign(r, v);
}

double flush_f32(double v) { return std::fabs(v) < 0x1p-126 ? std::copysign(0.0, v) : v; }

template <class F, class R>
Flow float_to_integer(Warp& w, const Instr& in, Mask m) {
  using S = std::conditional_t<F::bits == 64, uint64_t, uint32_t>;
  auto* d = w.out<slot_t<R>>(in.dst);
  auto* a = w.in<S>(in.src[0]);
  const auto how = static_cast<Integral>(in.u[kIntegralField]);
  const bool flush = F::bits == 32 && (in.u[kFlagsField] & kFlush);
  // NaN gives 0, or the middle of the range where a 64-bit type is involved (PTX ISA 9.7.9.21, integer
  // notes).
  constexpr bool kLong = F::bits == 64 || sizeof(R) == 8;
  const R nan = kLong ? static_cast<R>(uint64_t{1} << (8 * sizeof(R) - 1)) : R{0};
  constexpr double kLeast = static_cast<double>(std::numeric_limits<R>::min());
  const double beyond = std::ldexp(1.0, static_cast<int>(8 * sizeof(R)) - std::is_signed_v<R>);
  for_lanes(m, [&](int i) {
    double v = decode_number<F>(a[i]);
    if (flush) v = flush_f32(v);
    v = integral(v, how);
    const R r = v != v        ? nan
                : v <= kLeast ? std::numeric_limits<R>::min()
                : v >= beyond ? std::numeric_limits<R>::max()
                              : static_cast<R>(v);
    d[i] = integer_slot(r, in.u[kRegisterBitsField]);
  });
  return Flow::next;
}

// ---- float to float ----

template <class From, class To>
Flow float_to_float(Warp& w, const Instr& in, Mask m) {
  using A = std::conditional_t<From::bits == 64, uint64_t, uint32_t>;
  using D = std::conditional_t<To::bits == 64, uint64_t, uint32_t>;
  auto* d = w.out<D>(in.dst);
  auto* a = w.in<A>(in.src[0]);
  const auto mode = static_cast<Rounding>(in.u[kRoundingField]);
  const auto how = static_cast<Integral>(in.u[kIntegralField]);
  const uint8_t flags = in.u[kFlagsField];
  for_lanes(m, [&](int i) {
    double v = decode_number<From>(a[i]);
    if (From::bits == 32 && (flags & kFlush)) v = flush_f32(v);
    if (how != Integral::none) v = integral(v, how);
    d[i] = static_cast<D>(finish_float<To>(v, mode, flags));
  });
  return Flow::next;
}

// Between f32 and halves without modifiers.
template <class From>
Flow half_to_f32(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<uint32_t>(in.dst);
  auto* a = w.in<uint32_t>(in.src[0]);
  for_lanes(m, [&](int i) {
    const uint32_t r = bit_copy<uint32_t>(half_value<From>(a[i] & 0xffff));
    d[i] = (r & 0x7fffffff) > 0x7f800000 ? 0x7fffffff : r;
  });
  return Flow::next;
}

template <class To>
Flow f32_to_half(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<uint32_t>(in.dst);
  auto* a = w.in<uint32_t>(in.src[0]);
  for_lanes(m, [&](int i) { d[i] = half_nearest<To>(a[i]); });
  return Flow::next;
}

// f32 to tf32: a 32-bit word whose low 13 bits are zero; NaN is 0x7fffffff.
Flow to_tf32(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<uint32_t>(in.dst);
  auto* a = w.in<uint32_t>(in.src[0]);
  const auto mode = static_cast<Rounding>(in.u[kRoundingField]);
  for_lanes(m, [&](int i) {
    const double v = decode_number<F32>(a[i]);
    d[i] = v != v ? 0x7fffffff : static_cast<uint32_t>(finish_float<TF32>(v, mode, in.u[kFlagsField])) << 13;
  });
  return Flow::next;
}

// ---- decoding ----

ConvertModifiers take_modifiers(Decoder& d) {
  ConvertModifiers m;
  if (int r = d.take_any({"rni", "rzi", "rmi", "rpi"}); r >= 0) m.integral = static_cast<Integral>(r + 1);
  if (int r = d.take_any({"rn", "rz", "rm", "rp", "rna", "rs"}); r >= 0) {
    m.rounded = true;
    m.stochastic = r == 5;
    m.rounding = static_cast<Rounding>(r % 5);
  }
  m.scaled = d.take("scaled::n2::ue8m0");
  static constexpr std::pair<std::string_view, ConvertFlag> kFlags[] = {
      {"ftz", kFlush}, {"sat", kSaturate}, {"satfinite", kFinite}, {"relu", kRelu}};
  for (auto [name, flag] : kFlags)
    if (d.take(name)) m.flags |= flag;
  return m;
}

// The source slot of a scalar type. Registers may be wider than the type: of a 64-bit one the low half is
// copied.
Ref source(Decoder& d, const Operand& x, Type t) {
  if (x.kind != Kind::reg) return d.src(x, t);
  const int have = bits_of(d.register_type(x));
  if (have < bits_of(t) || d.register_type(x) == Type::pred)
    d.fail("the source register is ." + std::string(name_of(d.register_type(x))) + ", too small for ." +
           std::string(name_of(t)));
  if (have == 128) d.fail("the source register is .b128");
  const Ref r = d.src_any(x, t);
  if (have < 64 || bits_of(t) == 64) return r;
  Instr copy;
  copy.src[0] = r;
  copy.dst = d.temporary(Type::b32);
  set_extend(copy, Type::u32, 64, Type::u32, 32);
  d.emit_before(copy);
  return copy.dst;
}

// The destination slot; a 64-bit register of a smaller type is written by a second instruction.
void destination(Decoder& d, const Operand& x, Type t) {
  const Ref r = d.dst_any(x);
  const int have = bits_of(d.register_type(x));
  if (have < bits_of(t) || d.register_type(x) == Type::pred)
    d.fail("the destination register is ." + std::string(name_of(d.register_type(x))) + ", too small for ." +
           std::string(name_of(t)));
  if (have == 128) d.fail("the destination register is .b128");
  if (have < 64 || bits_of(t) == 64) {
    d.in.dst = r;
    d.in.u[kRegisterBitsField] = static_cast<uint8_t>(have);
    return;
  }
  d.in.u[kRegisterBitsField] = 32;
  d.in.dst = d.temporary(Type::b32);
  Instr copy;
  copy.src[0] = d.in.dst;
  copy.dst = r;
  copy.predicate = d.in.predicate;
  copy.negated = d.in.negated;
  set_extend(copy, is_signed(t) ? Type::s32 : Type::u32, 32, is_signed(t) ? Type::s64 : Type::u64, 64);
  d.emit_after(copy);
}

void decode_integer(Decoder& d, const ConvertModifiers& m, Type to, Type from) {
  if (m.rounded || m.integral != Integral::none) d.fail("rounding is not allowed between integers");
  if (m.flags & ~kSaturate) d.fail("only .sat is allowed between integers");
  if (m.flags & kSaturate) {
    d.in.src[0] = source(d, d.operand(1), from);
    destination(d, d.operand(0), to);
    d.in.fn = with_integer(from, [&](auto a) {
      return with_integer(to, [](auto r) -> Handler {
        return clamp_integer<typename decltype(a)::type, typename decltype(r)::type>;
      });
    });
    return;
  }
  const Operand &x = d.operand(1), &y = d.operand(0);
  const bool wide = x.kind == Kind::integer || x.kind == Kind::symbol ? bits_of(from) == 64 : d.wide(x);
  if (x.kind == Kind::reg && bits_of(d.register_type(x)) < bits_of(from)) source(d, x, from);  // reports it
  d.in.src[0] = d.src_any(x, from);
  d.in.dst = d.dst_any(y);
  const int have = bits_of(d.register_type(y));
  if (have < bits_of(to) || have > 64) destination(d, y, to);  // reports it
  set_extend(d.in, from, wide ? 64 : 32, to, have);
}

void decode_from_integer(Decoder& d, const ConvertModifiers& m, Type to, Type from) {
  if (m.integral != Integral::none) d.fail("integer rounding is not allowed to floating point");
  if (!m.rounded) d.fail("needs a rounding modifier: .rn, .rz, .rm, .rp");
  const bool native = m.rounding == Rounding::nearest && !(m.flags & kSaturate) && bits_of(to) >= 32;
  d.in.fn = with_integer(from, [&](auto a) {
    using A = typename decltype(a)::type;
    if (native)
      return to == Type::f32 ? Handler{integer_to_native<A, float>} : Handler{integer_to_native<A, double>};
    return with_format(to, [](auto r) -> Handler { return integer_to_float<A, typename decltype(r)::type>; });
  });
}

void decode_to_integer(Decoder& d, const ConvertModifiers& m, Type to, Type from) {
  if (m.rounded) d.fail("needs integer rounding (.rni, .rzi, .rmi, .rpi) to an integer type");
  if (m.integral == Integral::none) d.fail("needs a rounding modifier: .rni, .rzi, .rmi, .rpi");
  d.in.fn = with_format(from, [&](auto a) {
    return with_integer(to, [](auto r) -> Handler {
      return float_to_integer<typename decltype(a)::type, typename decltype(r)::type>;
    });
  });
}

void decode_float(Decoder& d, const ConvertModifiers& m, Type to, Type from) {
  static constexpr std::pair<Type, Type> kExact[] = {{Type::f32, Type::f16},
                                                     {Type::f32, Type::bf16},
                                                     {Type::f64, Type::f16},
                                                     {Type::f64, Type::bf16},
                                                     {Type::f64, Type::f32}};
  bool exact = to == from;
  for (auto [t, f] : kExact) exact |= t == to && f == from;
  if (m.integral != Integral::none && to != from) d.fail("integer rounding needs equal types");
  if (!exact && !m.rounded) d.fail("needs a rounding modifier: .rn, .rz, .rm, .rp");
  if (exact && m.rounded && from != Type::bf16)
    d.fail("rounding is not allowed where the conversion is exact");
  if ((m.flags & (kRelu | kFinite)) && bits_of(to) != 16)
    d.fail(".relu and .satfinite are for 16-bit and narrower results");
  if (m.flags == 0 && m.integral == Integral::none && m.rounding == Rounding::nearest) {
    if (to == Type::f32 && from == Type::f16) return void(d.in.fn = half_to_f32<F16>);
    if (to == Type::f32 && from == Type::bf16) return void(d.in.fn = half_to_f32<BF16>);
    if (to == Type::f16 && from == Type::f32) return void(d.in.fn = f32_to_half<F16>);
    if (to == Type::bf16 && from == Type::f32) return void(d.in.fn = f32_to_half<BF16>);
  }
  d.in.fn = with_format(from, [&](auto a) {
    return with_format(to, [](auto r) -> Handler {
      return float_to_float<typename decltype(a)::type, typename decltype(r)::type>;
    });
  });
}

void decode_scalar(Decoder& d, const ConvertModifiers& m, Type to, Type from) {
  d.need_operands(2);
  auto known = [](Type t) { return is_integer(t) || (is_real(t) && t != Type::tf32); };
  const bool tf32 = to == Type::tf32 && from == Type::f32;
  if (!tf32 && (!known(to) || !known(from)))
    d.fail("cannot convert ." + std::string(name_of(from)) + " to ." + std::string(name_of(to)));
  if (m.scaled || m.stochastic) d.fail(".rs and .scaled are for packed results");
  if (m.rounding == Rounding::away && !tf32) d.fail(".rna is for .tf32 only");
  if (is_integer(to) && is_integer(from)) return decode_integer(d, m, to, from);
  if ((m.flags & kFlush) && to != Type::f32 && from != Type::f32 && from != Type::bf16)
    d.fail(".ftz needs a type .f32");
  d.in.u[kRoundingField] = static_cast<uint8_t>(m.rounding);
  d.in.u[kIntegralField] = static_cast<uint8_t>(m.integral);
  d.in.u[kFlagsField] = m.flags;
  d.in.src[0] = source(d, d.operand(1), from);
  destination(d, d.operand(0), tf32 ? Type::b32 : to);
  if (tf32) {
    if (!m.rounded) d.fail("needs a rounding modifier: .rn, .rz, .rna");
    if (m.flags & (kFlush | kSaturate)) d.fail(".ftz and .sat are not for .tf32");
    d.in.fn = to_tf32;
  } else if (is_integer(from)) {
    decode_from_integer(d, m, to, from);
  } else if (is_integer(to)) {
    decode_to_integer(d, m, to, from);
  } else {
    decode_float(d, m, to, from);
  }
}

void decode_cvt(Decoder& d) {
  const ConvertModifiers m = take_modifiers(d);
  const std::string_view to = d.take_next(), from = d.take_next();
  if (from.empty()) d.fail("needs two types");
  if (decode_packed_convert(d, m, to, from)) return;
  const auto t = parse_type(to), f = parse_type(from);
  if (!t) d.fail("unknown type '." + std::string(to) + "'");
  if (!f) d.fail("unknown type '." + std::string(from) + "'");
  decode_scalar(d, m, *t, *f);
}

// ---- cvt.pack ----

// u[0]: bits of a result, u[1]: signed. The two results lie lowest, b below a; c follows above them.
Flow pack(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<uint32_t>(in.dst);
  auto *a = w.in<uint32_t>(in.src[0]), *b = w.in<uint32_t>(in.src[1]);
  auto* c = in.src[2] == kNoRef ? nullptr : w.in<uint32_t>(in.src[2]);
  const int bits = in.u[0];
  const int32_t most = (1 << (bits - in.u[1])) - 1, least = in.u[1] ? -most - 1 : 0;
  const uint32_t field = (1u << bits) - 1;
  for_lanes(m, [&](int i) {
    auto cut = [&](uint32_t x) {
      return static_cast<uint32_t>(std::clamp(static_cast<int32_t>(x), least, most)) & field;
    };
    const uint32_t above = c ? c[i] << (2 * bits) : 0;
    d[i] = cut(b[i]) | cut(a[i]) << bits | above;
  });
  return Flow::next;
}

void decode_pack(Decoder& d) {
  static constexpr int kBits[] = {16, 16, 8, 8, 4, 4, 2, 2};
  d.need("sat");
  const int row = d.need_any({"u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"});
  d.need("s32");
  const bool merge = d.take("b32");
  if (merge == (row < 2))
    d.fail(row < 2 ? "16-bit results leave no room for .b32"
                   : "results below 16 bits need .b32 and a third source");
  d.in.u[0] = static_cast<uint8_t>(kBits[row]);
  d.in.u[1] = row & 1;
  simple_operands(d, Type::b32, merge ? 3 : 2);
  d.in.fn = pack;
}

constexpr Entry kEntries[] = {
    {"cvt", decode_cvt, "all scalar types, tf32, f16x2 bf16x2, e4m3 e5m2 e2m3 e3m2 e2m1 s2f6 ue8m0, .rs"},
    {"cvt.pack", decode_pack, ".sat; u16 s16 u8 s8 u4 s4 u2 s2"},
};

}  // namespace

Family convert_family() { return {"conversion", kEntries, std::size(kEntries), true}; }

}  // namespace tcgen05::vsm

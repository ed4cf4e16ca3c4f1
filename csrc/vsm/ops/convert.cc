// Conversions between integer types (PTX ISA 9.7.9.21), and the row of cvt. Floating point: float_convert.cc.
#include <iterator>

#include "vsm/ops/common.h"
#include "vsm/ops/families.h"

namespace tcgen05::vsm {
namespace {

// S: the source type. `u[0]` bits of the destination type, `u[1]` whether it is signed (so the result is
// sign-extended into a wider register).
template <class S, bool kWideIn, bool kWideOut>
Flow convert(Warp& w, const Instr& in, Mask m) {
  using I = std::conditional_t<kWideIn, uint64_t, uint32_t>;
  using O = std::conditional_t<kWideOut, uint64_t, uint32_t>;
  auto* d = w.out<O>(in.dst);
  auto* a = w.in<I>(in.src[0]);
  uint32_t cut = 64 - in.u[0];
  if (in.u[1]) {
    for_lanes(m, [&](int i) {
      uint64_t v = static_cast<uint64_t>(static_cast<int64_t>(static_cast<S>(a[i])));
      d[i] = static_cast<O>(static_cast<int64_t>(v << cut) >> cut);
    });
  } else {
    for_lanes(m, [&](int i) {
      uint64_t v = static_cast<uint64_t>(static_cast<int64_t>(static_cast<S>(a[i])));
      d[i] = static_cast<O>(v << cut >> cut);
    });
  }
  if (in.u[2] && in.u[0] < 32 && !kWideOut) {  // a 16-bit register keeps its upper half clear
    for_lanes(m, [&](int i) { d[i] &= static_cast<O>(0xffff); });
  }
  return Flow::next;
}

template <class S, bool kWideIn, bool kWideOut>
Flow convert_saturating(Warp& w, const Instr& in, Mask m) {
  using I = std::conditional_t<kWideIn, uint64_t, uint32_t>;
  using O = std::conditional_t<kWideOut, uint64_t, uint32_t>;
  auto* d = w.out<O>(in.dst);
  auto* a = w.in<I>(in.src[0]);
  __int128 one = 1, low = in.u[1] ? -(one << (in.u[0] - 1)) : 0,
           high = (one << (in.u[0] - (in.u[1] ? 1 : 0))) - 1;
  for_lanes(m, [&](int i) {
    __int128 v = static_cast<S>(a[i]);
    v = v < low ? low : v > high ? high : v;
    O out = static_cast<O>(v);
    d[i] = in.u[2] && !kWideOut ? out & static_cast<O>(0xffff) : out;
  });
  return Flow::next;
}

template <class S>
Handler by_width(bool wide_in, bool wide_out, bool saturate) {
  static constexpr Handler kPlain[] = {convert<S, false, false>, convert<S, false, true>,
                                       convert<S, true, false>, convert<S, true, true>};
  static constexpr Handler kSaturating[] = {
      convert_saturating<S, false, false>, convert_saturating<S, false, true>,
      convert_saturating<S, true, false>, convert_saturating<S, true, true>};
  return (saturate ? kSaturating : kPlain)[2 * wide_in + wide_out];
}

Handler by_source(Type s, bool wide_in, bool wide_out, bool saturate) {
  switch (s) {
    case Type::u8:
      return by_width<uint8_t>(wide_in, wide_out, saturate);
    case Type::s8:
      return by_width<int8_t>(wide_in, wide_out, saturate);
    case Type::u16:
      return by_width<uint16_t>(wide_in, wide_out, saturate);
    case Type::s16:
      return by_width<int16_t>(wide_in, wide_out, saturate);
    case Type::u32:
      return by_width<uint32_t>(wide_in, wide_out, saturate);
    case Type::s32:
      return by_width<int32_t>(wide_in, wide_out, saturate);
    case Type::u64:
      return by_width<uint64_t>(wide_in, wide_out, saturate);
    default:
      return by_width<int64_t>(wide_in, wide_out, saturate);
  }
}

void decode_cvt(Decoder& d) {
  Decoder probe = d;
  Type to = Type::none, from = Type::none;
  bool integers = probe.take_type(&to) && probe.take_type(&from) && is_integer(to) && is_integer(from);
  if (!integers) return decode_float_convert(d);
  bool saturate = d.take("sat");
  d.type();
  d.type();
  d.need_operands(2);
  const Operand &out = d.operand(0), &x = d.operand(1);
  Type have = d.register_type(out);
  if (bits_of(have) < bits_of(to))
    d.fail("the destination register is too small for ." + std::string(name_of(to)));
  bool wide_in =
      x.kind == Operand::Kind::integer || x.kind == Operand::Kind::symbol ? bits_of(from) == 64 : d.wide(x);
  if (d.register_type(x) != Type::none && bits_of(d.register_type(x)) < bits_of(from))
    d.fail("the source register is too small for ." + std::string(name_of(from)));
  d.in.dst = d.dst_any(out);
  d.in.src[0] = d.src_any(x, wide_in ? Type::b64 : Type::b32);
  d.in.u[0] = static_cast<uint8_t>(bits_of(to));
  d.in.u[1] = is_signed(to);
  d.in.u[2] = bits_of(have) == 16;
  d.in.fn = by_source(from, wide_in, d.wide(out), saturate);
}

// cvt.pack.sat.to.from{.b32} d, a, b {, c}: a and b saturated into the low elements, above them what c holds.
Flow pack_saturating(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<uint32_t>(in.dst);
  auto *a = w.in<int32_t>(in.src[0]), *b = w.in<int32_t>(in.src[1]);
  auto* c = in.src[2] == kNoRef ? nullptr : w.in<uint32_t>(in.src[2]);
  int bits = in.u[0];
  int64_t low = in.u[1] ? -(int64_t{1} << (bits - 1)) : 0, high = (int64_t{1} << (bits - in.u[1])) - 1;
  uint32_t mask = static_cast<uint32_t>((uint64_t{1} << bits) - 1);
  for_lanes(m, [&](int i) {
    auto clamp = [&](int64_t v) { return static_cast<uint32_t>(v < low ? low : v > high ? high : v) & mask; };
    uint32_t pair = clamp(a[i]) << bits | clamp(b[i]);
    d[i] = c ? (bits == 16 ? pair : c[i] << (2 * bits) | pair) : pair;
  });
  return Flow::next;
}

void decode_cvt_pack(Decoder& d) {
  d.need("sat");
  std::string_view to = d.take_next();
  static constexpr std::string_view kNames[] = {"u2", "s2", "u4", "s4", "u8", "s8", "u16", "s16"};
  size_t row = 0;
  while (row < std::size(kNames) && kNames[row] != to) ++row;
  if (row == std::size(kNames)) d.fail("cvt.pack cannot write '." + std::string(to) + "'");
  d.in.u[0] = static_cast<uint8_t>(2 << (row / 2));
  d.in.u[1] = row % 2;
  d.type_of({Type::s32});
  Type carried;
  bool has_c = d.take_type(&carried);
  d.need_operands(has_c ? 4 : 3);
  d.in.dst = d.dst(d.operand(0), Type::b32);
  for (size_t i = 0; i + 1 < d.operands(); ++i) d.in.src[i] = d.src(d.operand(i + 1), Type::b32);
  d.in.fn = pack_saturating;
}

constexpr Entry kEntries[] = {
    {"cvt", decode_cvt, "integers {.sat}; floating point: all formats, roundings, .relu, .satfinite"},
    {"cvt.pack", decode_cvt_pack, ".sat to 2, 4, 8, 16 bits"},
};

}  // namespace

Family convert_family() { return {"conversion", kEntries, std::size(kEntries)}; }

}  // namespace tcgen05::vsm

// Moves and addresses (PTX ISA 9.7.9): mov with packing, cvta, isspacep, mapa, getctarank.
#include <iterator>

#include "vsm/ops/address.h"
#include "vsm/ops/common.h"
#include "vsm/ops/families.h"

namespace tcgen05::vsm {
namespace {

using Kind = Operand::Kind;

template <class S>
Flow move(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<S>(in.dst);
  auto* a = w.in<S>(in.src[0]);
  if (m == ~Mask{0}) {
    std::memmove(d, a, 32 * sizeof(S));
  } else {
    for_lanes(m, [&](int i) { d[i] = a[i]; });
  }
  return Flow::next;
}

Flow move128(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<uint64_t>(in.dst);
  auto* a = w.in<uint64_t>(in.src[0]);
  for_lanes(m, [&](int i) {
    d[i] = a[i];
    d[i + 32] = a[i + 32];
  });
  return Flow::next;
}

Flow move_predicate(Warp& w, const Instr& in, Mask m) {
  w.set_predicate(in.dst, m, w.predicate(in.src[0]) ^ (in.u[0] ? ~Mask{0} : 0));
  return Flow::next;
}

// `u[0]` bits of each element; `u[1]` bits of the whole. Elements lie from the low end up.
Flow pack(Warp& w, const Instr& in, Mask m) {
  const Ref* refs = &w.program->refs[in.list];
  for_lanes(m, [&](int i) {
    uint64_t out[2] = {0, 0};
    for (uint32_t k = 0; k < in.list_size; ++k) {
      uint64_t v = w.read(refs[k], in.u[0] == 64, i);
      if (in.u[0] < 64) v &= (uint64_t{1} << in.u[0]) - 1;
      uint32_t at = k * in.u[0];
      out[at / 64] |= v << (at % 64);
    }
    if (in.u[1] <= 32) {
      w.out<uint32_t>(in.dst)[i] = static_cast<uint32_t>(out[0]);
    } else {
      w.out<uint64_t>(in.dst)[i] = out[0];
      if (in.u[1] == 128) w.out<uint64_t>(in.dst)[i + 32] = out[1];
    }
  });
  return Flow::next;
}

Flow unpack(Warp& w, const Instr& in, Mask m) {
  const Ref* refs = &w.program->refs[in.list];
  for_lanes(m, [&](int i) {
    uint64_t v[2] = {w.read(in.src[0], in.u[1] > 32, i), 0};
    if (in.u[1] == 128) v[1] = w.in<uint64_t>(in.src[0])[i + 32];
    for (uint32_t k = 0; k < in.list_size; ++k) {
      uint32_t at = k * in.u[0];
      uint64_t x = v[at / 64] >> (at % 64);
      if (in.u[0] == 64) {
        w.out<uint64_t>(refs[k])[i] = x;
      } else {
        w.out<uint32_t>(refs[k])[i] = static_cast<uint32_t>(x & ((uint64_t{1} << in.u[0]) - 1));
      }
    }
  });
  return Flow::next;
}

Type bits_type(int bits) {
  return bits == 8 ? Type::b8 : bits == 16 ? Type::b16 : bits == 32 ? Type::b32 : Type::b64;
}

void decode_packing(Decoder& d, Type t, const Operand& vector, const Operand& whole, bool writes_vector) {
  size_t n = vector.list.size();
  if (n != 2 && n != 4 && n != 8) d.fail("mov packs 2, 4 or 8 elements");
  int each = bits_of(t) / static_cast<int>(n);
  if (each < 8 || bits_of(t) < 16) d.fail("elements of mov must have 8 bits or more");
  d.in.u[0] = static_cast<uint8_t>(each);
  d.in.u[1] = static_cast<uint8_t>(bits_of(t));
  // An 8-bit element lives in a 16-bit register or in an 8-bit one.
  std::vector<Ref> refs;
  for (const Operand& x : vector.list) {
    if (each == 8 && bits_of(d.register_type(x)) > 32)
      d.fail("8-bit elements of mov need registers of 8 to 32 bits");
    if (writes_vector) {
      refs.push_back(x.kind == Kind::sink ? d.temporary(bits_type(each))
                     : each == 8          ? d.dst_any(x)
                                          : d.dst(x, bits_type(each)));
    } else {
      refs.push_back(each == 8 ? d.src_any(x, Type::b8) : d.src(x, bits_type(each)));
    }
  }
  d.set_list(refs);
  if (writes_vector) {
    d.in.src[0] = d.src(whole, t);
    d.in.fn = unpack;
  } else {
    d.in.dst = d.dst(whole, t);
    d.in.fn = pack;
  }
}

void decode_mov(Decoder& d) {
  Type t = d.type();
  d.need_operands(2);
  const Operand &to = d.operand(0), &from = d.operand(1);
  if (t == Type::pred) {
    bool negated = false;
    d.in.dst = d.pred_dst(to);
    d.in.src[0] = d.pred_src(from, &negated);
    d.in.u[0] = negated;
    d.in.fn = move_predicate;
    return;
  }
  if (to.kind == Kind::vector) return decode_packing(d, t, to, from, true);
  if (from.kind == Kind::vector) return decode_packing(d, t, from, to, false);
  if (from.kind == Kind::function) d.fail("addresses of functions are not supported");
  d.in.dst = d.dst(to, t);
  // Constants of f16 and bf16 are spelled as bits.
  Type read = t == Type::f16 || t == Type::bf16 ? Type::b16 : t;
  if (is_real(read) && from.kind == Kind::integer) read = bits_type(bits_of(t));
  d.in.src[0] = d.src(from, read);
  int b = bits_of(t);
  d.in.fn = b <= 32 ? move<uint32_t> : b == 64 ? move<uint64_t> : move128;
}

// Windows of the generic address space. `u[0]`: towards generic; `imm`: the window.
template <bool kWideIn, bool kWideOut>
Flow cvta(Warp& w, const Instr& in, Mask m) {
  using A = std::conditional_t<kWideIn, uint64_t, uint32_t>;
  using D = std::conditional_t<kWideOut, uint64_t, uint32_t>;
  auto* d = w.out<D>(in.dst);
  auto* a = w.in<A>(in.src[0]);
  uint64_t window = in.imm;
  if (in.u[0]) {
    for_lanes(m, [&](int i) { d[i] = static_cast<D>(uint64_t{a[i]} + window); });
  } else {
    for_lanes(m, [&](int i) { d[i] = static_cast<D>(uint64_t{a[i]} - window); });
  }
  return Flow::next;
}

uint64_t window_of(Space s) {
  switch (s) {
    case Space::shared:
      return kSharedWindow;
    case Space::local:
      return kLocalWindow;
    case Space::param:
      return kParamWindow;
    default:
      return 0;
  }
}

Space named_space(Decoder& d) {
  const Space space = take_space(d);
  if (space == Space::generic) d.fail("needs a state space");
  return space;
}

void decode_cvta(Decoder& d) {
  d.in.u[0] = !d.take("to");
  Space s = named_space(d);
  if (s == Space::shared_cluster) s = Space::shared;
  d.in.imm = window_of(s);
  Type t = d.type_of({Type::u32, Type::u64});
  d.need_operands(2);
  const Operand& from = d.operand(1);
  if (from.kind == Kind::symbol && from.variable->space == Space::local && s == Space::param)
    d.in.imm = kLocalWindow;
  d.in.dst = d.dst(d.operand(0), t);
  d.in.src[0] = d.src(from, t);
  d.in.fn = t == Type::u64 ? cvta<true, true> : cvta<false, false>;
}

bool in_space(Warp& w, Space s, uint64_t a) {
  uint64_t window = a & ~((uint64_t{1} << kWindowBits) - 1);
  switch (s) {
    case Space::shared:
      return window == kSharedWindow && (a >> kRankShift & 0xffff) == w.cta->rank;
    case Space::shared_cluster:
      return window == kSharedWindow;
    case Space::local:
      return window == kLocalWindow;
    case Space::param:
      return window == kParamWindow;
    case Space::constant:
      return window == kModuleWindow;
    default:
      return window > kModuleWindow || window == 0;
  }
}

Flow isspacep(Warp& w, const Instr& in, Mask m) {
  Mask r = 0;
  for_lanes(m, [&](int i) {
    r |= static_cast<Mask>(in_space(w, static_cast<Space>(in.u[0]), w.read(in.src[0], in.u[1], i))) << i;
  });
  w.set_predicate(in.dst, m, r);
  return Flow::next;
}

void decode_isspacep(Decoder& d) {
  d.in.u[0] = static_cast<uint8_t>(named_space(d));
  d.need_operands(2);
  d.in.dst = d.pred_dst(d.operand(0));
  d.in.src[0] = d.src_any(d.operand(1), Type::u64);
  d.in.u[1] = d.wide(d.operand(1)) || d.is_constant(d.operand(1));
  d.in.fn = isspacep;
}

// mapa d, a, b: the address in CTA b that corresponds to a. `u[0]`: generic.
template <class S>
Flow mapa(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<S>(in.dst);
  auto* a = w.in<S>(in.src[0]);
  auto* b = w.in<uint32_t>(in.src[1]);
  for_lanes(m, [&](int i) {
    uint64_t v = a[i];
    if (in.u[0] && v >> kWindowBits << kWindowBits != kSharedWindow)
      throw Fault{"mapa needs a shared address, found generic address " + hex(v), i};
    w.cta->cluster->cta(b[i], i);
    d[i] = static_cast<S>((v & ~(uint64_t{0xff} << kRankShift)) | uint64_t{b[i]} << kRankShift);
  });
  return Flow::next;
}

void decode_mapa(Decoder& d) {
  d.in.u[0] = !d.take("shared::cluster");
  Type t = d.type_of({Type::u32, Type::u64});
  d.need_operands(3);
  d.in.dst = d.dst(d.operand(0), t);
  d.in.src[0] = d.src(d.operand(1), t);
  d.in.src[1] = d.src(d.operand(2), Type::u32);
  d.in.fn = t == Type::u32 ? mapa<uint32_t> : mapa<uint64_t>;
}

template <class S>
Flow getctarank(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<uint32_t>(in.dst);
  auto* a = w.in<S>(in.src[0]);
  for_lanes(m, [&](int i) { d[i] = static_cast<uint32_t>(a[i] >> kRankShift & 0xff); });
  return Flow::next;
}

void decode_getctarank(Decoder& d) {
  d.take("shared::cluster");
  Type t = d.type_of({Type::u32, Type::u64});
  d.need_operands(2);
  d.in.dst = d.dst(d.operand(0), Type::u32);
  d.in.src[0] = d.src(d.operand(1), t);
  d.in.fn = t == Type::u32 ? getctarank<uint32_t> : getctarank<uint64_t>;
}

constexpr Entry kEntries[] = {
    {"mov", decode_mov, "all types, packing and unpacking of 2, 4, 8 elements, addresses of variables"},
    {"cvta", decode_cvta, "{.to} .global .shared{::cta ::cluster} .local .param .const"},
    {"isspacep", decode_isspacep, "all spaces"},
    {"mapa", decode_mapa, "{.shared::cluster} .u32 .u64"},
    {"getctarank", decode_getctarank, "{.shared::cluster} .u32 .u64"},
};

}  // namespace

Family move_family() { return {"moves and addresses", kEntries, std::size(kEntries), true}; }

}  // namespace tcgen05::vsm

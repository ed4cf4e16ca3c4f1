// Loads, stores and atomics (PTX ISA 9.7.9, 9.7.13.5-7).
#include <iterator>
#include <mutex>

#include "vsm/checker.h"
#include "vsm/ops/address.h"
#include "vsm/ops/common.h"
#include "vsm/ops/families.h"
#include "vsm/ops/half.h"
#include "vsm/ops/reduction.h"

namespace tcgen05::vsm {
namespace {

using Kind = Operand::Kind;

// in.u[0] space, u[1] address register is wide, u[2] synchronises (.relaxed and stronger); imm offset; list
// the registers.
void resolve(Warp& w, const Instr& in, Mask m, uint32_t bytes, Touch touch, uint8_t** p) {
  uint64_t addresses[32];
  Space space = static_cast<Space>(in.u[0]);
  lane_addresses(w, in.src[0], in.u[1], in.imm, m, addresses);
  lane_pointers(w, space, addresses, {bytes, bytes, touch != Touch::load, true}, m, p);
  if (!w.checker) return;
  auto location = [&](int i) { return reinterpret_cast<uintptr_t>(p[i]); };
  if (in.u[2]) for_lanes(m, [&](int i) { w.checker->acquire(w, location(i), i); });
  w.checker->shared(w, in, space, addresses, bytes, m, touch);
  if (in.u[2]) for_lanes(m, [&](int i) { w.checker->release(w, location(i)); });
}

// M: the type in memory, S: the register's slot. Signed types are extended to the register's width.
template <class M, class S>
Flow load(Warp& w, const Instr& in, Mask m) {
  uint8_t* p[32];
  resolve(w, in, m, static_cast<uint32_t>(sizeof(M)) * in.list_size, Touch::load, p);
  const Ref* refs = &w.program->refs[in.list];
  for (uint32_t k = 0; k < in.list_size; ++k) {
    S* d = w.out<S>(refs[k]);
    for_lanes(m, [&](int i) {
      M v;
      std::memcpy(&v, p[i] + k * sizeof(M), sizeof v);
      using Wide = std::conditional_t<std::is_signed_v<M>, std::make_signed_t<S>, S>;
      d[i] = static_cast<S>(static_cast<Wide>(v));
    });
  }
  return Flow::next;
}

template <class M, class S>
Flow store(Warp& w, const Instr& in, Mask m) {
  uint8_t* p[32];
  resolve(w, in, m, static_cast<uint32_t>(sizeof(M)) * in.list_size, Touch::store, p);
  const Ref* refs = &w.program->refs[in.list];
  for (uint32_t k = 0; k < in.list_size; ++k) {
    const S* s = w.in<S>(refs[k]);
    for_lanes(m, [&](int i) {
      M v = static_cast<M>(s[i]);
      std::memcpy(p[i] + k * sizeof(M), &v, sizeof v);
    });
  }
  if (static_cast<Space>(in.u[0]) != Space::local) ++w.cta->cluster->progress;
  return Flow::next;
}

Flow load128(Warp& w, const Instr& in, Mask m) {
  uint8_t* p[32];
  resolve(w, in, m, 16 * in.list_size, Touch::load, p);
  const Ref* refs = &w.program->refs[in.list];
  for (uint32_t k = 0; k < in.list_size; ++k) {
    auto* d = w.out<uint64_t>(refs[k]);
    for_lanes(m, [&](int i) {
      std::memcpy(&d[i], p[i] + 16 * k, 8);
      std::memcpy(&d[i + 32], p[i] + 16 * k + 8, 8);
    });
  }
  return Flow::next;
}

Flow store128(Warp& w, const Instr& in, Mask m) {
  uint8_t* p[32];
  resolve(w, in, m, 16 * in.list_size, Touch::store, p);
  const Ref* refs = &w.program->refs[in.list];
  for (uint32_t k = 0; k < in.list_size; ++k) {
    auto* s = w.in<uint64_t>(refs[k]);
    for_lanes(m, [&](int i) {
      std::memcpy(p[i] + 16 * k, &s[i], 8);
      std::memcpy(p[i] + 16 * k + 8, &s[i + 32], 8);
    });
  }
  ++w.cta->cluster->progress;
  return Flow::next;
}

template <bool kSigned, class S>
Handler load_handler(int bytes) {
  switch (bytes) {
    case 1:
      return kSigned ? load<int8_t, S> : load<uint8_t, S>;
    case 2:
      return kSigned ? load<int16_t, S> : load<uint16_t, S>;
    case 4:
      return kSigned ? load<int32_t, S> : load<uint32_t, S>;
    default:
      return load<uint64_t, S>;
  }
}

template <class S>
Handler store_handler(int bytes) {
  switch (bytes) {
    case 1:
      return store<uint8_t, S>;
    case 2:
      return store<uint16_t, S>;
    case 4:
      return store<uint32_t, S>;
    default:
      return store<uint64_t, S>;
  }
}

// Registers of a load or store: all of one slot width, which may exceed the type's.
void value_registers(Decoder& d, const Operand& values, Type t, size_t n, bool writes, bool* wide) {
  std::vector<Ref> refs;
  const Operand* first = &values;
  std::vector<Operand> one;
  const std::vector<Operand>* list = &values.list;
  if (values.kind != Kind::vector) {
    one.push_back(*first);
    list = &one;
  }
  if (list->size() != n)
    d.fail("needs a vector of " + std::to_string(n) + " registers, found " + std::to_string(list->size()));
  *wide = bits_of(t) == 64;
  for (const Operand& x : *list)
    if (x.kind == Kind::reg || x.kind == Kind::special) *wide = d.wide(x);
  for (const Operand& x : *list) {
    if (x.kind == Kind::reg && bits_of(d.register_type(x)) < bits_of(t))
      d.fail("a register is too small for ." + std::string(name_of(t)));
    if ((x.kind == Kind::reg || x.kind == Kind::special) &&
        (d.wide(x) != *wide || (d.register_type(x) == Type::b128) != (t == Type::b128)))
      d.fail("registers of different widths in one vector, or wider than their type allows");
    if (x.kind == Kind::special && bits_of(t) > (*wide ? 64 : 32))
      d.fail("a register is too small for ." + std::string(name_of(t)));
    if (x.kind == Kind::sink && writes) {
      refs.push_back(d.temporary(*wide ? Type::b64 : bits_of(t) == 128 ? Type::b128 : Type::b32));
    } else if (writes) {
      refs.push_back(d.dst_any(x));
    } else {
      refs.push_back(d.src_any(x, is_real(t) && x.kind == Kind::integer ? (*wide ? Type::b64 : Type::b32)
                                  : *wide && bits_of(t) < 64            ? Type::b64
                                                                        : t));
    }
  }
  d.set_list(refs);
}

size_t take_vector(Decoder& d) {
  int v = d.take_any({"v2", "v4", "v8"});
  return v < 0 ? 1 : size_t{2} << v;
}

void set_address(Decoder& d, const Operand& x, Space named) {
  bool wide = false;
  d.in.src[0] = d.address(x, &d.in.imm, &wide);
  d.in.u[1] = wide;
  d.in.u[0] = static_cast<uint8_t>(space_of(d, x, named));
}

void decode_ld(Decoder& d) {
  bool policy = take_cache_modifiers(d);
  d.in.u[2] = take_order_modifiers(d).strong;
  Space space = take_space(d);
  size_t n = take_vector(d);
  Type t = d.type();
  d.need_operands(policy ? 3 : 2);
  if (t == Type::pred) d.fail("predicates cannot be loaded");
  set_address(d, d.operand(1), space);
  bool wide = false;
  value_registers(d, d.operand(0), t, n, true, &wide);
  if (bytes_of(t) * static_cast<int>(n) > 32) d.fail("loads more than 32 bytes");
  if (t == Type::b128) {
    d.in.fn = load128;
  } else if (wide) {
    d.in.fn =
        is_signed(t) ? load_handler<true, uint64_t>(bytes_of(t)) : load_handler<false, uint64_t>(bytes_of(t));
  } else {
    d.in.fn =
        is_signed(t) ? load_handler<true, uint32_t>(bytes_of(t)) : load_handler<false, uint32_t>(bytes_of(t));
  }
}

void decode_st(Decoder& d) {
  bool policy = take_cache_modifiers(d);
  d.in.u[2] = take_order_modifiers(d).strong;
  Space space = take_space(d);
  size_t n = take_vector(d);
  Type t = d.type();
  d.need_operands(policy ? 3 : 2);
  if (t == Type::pred) d.fail("predicates cannot be stored");
  if (space == Space::constant) d.fail("constants cannot be stored to");
  set_address(d, d.operand(0), space);
  bool wide = false;
  value_registers(d, d.operand(1), t, n, false, &wide);
  if (bytes_of(t) * static_cast<int>(n) > 32) d.fail("stores more than 32 bytes");
  if (t == Type::b128) {
    d.in.fn = store128;
  } else {
    d.in.fn = wide ? store_handler<uint64_t>(bytes_of(t)) : store_handler<uint32_t>(bytes_of(t));
  }
}

Flow prefetch(Warp&, const Instr&, Mask) { return Flow::next; }

void decode_prefetch(Decoder& d) {
  while (!d.take_next().empty()) {
  }
  d.in.fn = prefetch;
}

// createpolicy: any value will do, because caching has no effect here.
Flow policy(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<uint64_t>(in.dst);
  for_lanes(m, [&](int i) { d[i] = 0; });
  return Flow::next;
}

void decode_createpolicy(Decoder& d) {
  while (!d.take_next().empty()) {
  }
  d.in.dst = d.dst(d.operand(0), Type::b64);
  d.in.fn = policy;
}

// ---- atomics ----

struct Atomic {
  Reduction op;
  Type type;
  uint32_t n;  // vector elements
  bool has_result, wide;
  std::vector<Ref> result, b, c;
};

Flow atomic(Warp& w, const Instr& in, Mask m) {
  const auto& a = *static_cast<const Atomic*>(in.aux);
  uint8_t* p[32];
  uint32_t each = static_cast<uint32_t>(bytes_of(a.type));
  resolve(w, in, m, each * a.n, Touch::atomic, p);
  std::lock_guard<std::mutex> lock(atomics());
  for_lanes(m, [&](int i) {
    for (uint32_t k = 0; k < a.n; ++k) {
      uint64_t old = 0;
      std::memcpy(&old, p[i] + each * k, each);
      uint64_t b = w.read(a.b[k], a.wide, i), c = a.c.empty() ? 0 : w.read(a.c[k], a.wide, i);
      if (each == 2) b &= 0xffff;
      uint64_t now = reduce(a.op, a.type, old, b, c);
      std::memcpy(p[i] + each * k, &now, each);
      if (!a.has_result) continue;
      if (a.wide) {
        w.out<uint64_t>(a.result[k])[i] = old;
      } else {
        w.out<uint32_t>(a.result[k])[i] = static_cast<uint32_t>(old);
      }
    }
  });
  ++w.cta->cluster->progress;
  return Flow::next;
}

Flow atomic128(Warp& w, const Instr& in, Mask m) {
  const auto& a = *static_cast<const Atomic*>(in.aux);
  uint8_t* p[32];
  resolve(w, in, m, 16, Touch::atomic, p);
  std::lock_guard<std::mutex> lock(atomics());
  for_lanes(m, [&](int i) {
    uint64_t old[2];
    std::memcpy(old, p[i], 16);
    auto *b = w.in<uint64_t>(a.b[0]), *c = a.c.empty() ? nullptr : w.in<uint64_t>(a.c[0]);
    uint64_t now[2] = {b[i], b[i + 32]};
    if (a.op == Reduction::cas) {
      bool equal = old[0] == b[i] && old[1] == b[i + 32];
      now[0] = equal ? c[i] : old[0];
      now[1] = equal ? c[i + 32] : old[1];
    }
    std::memcpy(p[i], now, 16);
    auto* d = w.out<uint64_t>(a.result[0]);
    d[i] = old[0];
    d[i + 32] = old[1];
  });
  ++w.cta->cluster->progress;
  return Flow::next;
}

void decode_atomic(Decoder& d) {
  bool has_result = d.root() == "atom";
  auto a = std::make_shared<Atomic>();
  a->op = static_cast<Reduction>(
      d.need_any({"and", "or", "xor", "exch", "add", "inc", "dec", "min", "max", "cas"}));
  bool policy = take_cache_modifiers(d);
  take_order_modifiers(d);
  d.in.u[2] = true;
  d.take("noftz");
  Space space = take_space(d);
  a->n = static_cast<uint32_t>(take_vector(d));
  Type t = a->type = d.type();
  if (!has_result && (a->op == Reduction::exch || a->op == Reduction::cas))
    d.fail("red has no .exch and no .cas");
  if (space == Space::constant || space == Space::param) d.fail("this space has no atomics");
  if (!reduction_allowed(a->op, t) || (a->n > 1 && !is_real(t) && kind_of(t) != TypeKind::packed))
    d.fail("type ." + std::string(name_of(t)) + " is not allowed with this operation");
  a->has_result = has_result;
  a->wide = bits_of(t) == 64;
  size_t at = has_result ? 1 : 0, sources = a->op == Reduction::cas ? 2 : 1;
  d.need_operands(at + 1 + sources, at + 1 + sources + policy);
  set_address(d, d.operand(at), space);
  Type bits = bits_of(t) == 16 ? Type::b16 : bits_of(t) == 32 ? Type::b32 : t == Type::b128 ? t : Type::b64;
  Type read = is_real(t) && bits_of(t) >= 32 ? t : bits;
  if (has_result) a->result = d.refs(d.operand(0), bits, true);
  a->b = d.refs(d.operand(at + 1), read, false);
  if (sources == 2) a->c = d.refs(d.operand(at + 2), read, false);
  if (a->b.size() != a->n || (has_result && a->result.size() != a->n))
    d.fail("needs vectors of " + std::to_string(a->n) + " registers");
  d.own(a);
  d.in.fn = t == Type::b128 ? atomic128 : atomic;
}

constexpr Entry kEntries[] = {
    {"ld", decode_ld, "all spaces, orders, caches; .v2 .v4 .v8; 8 to 128 bits"},
    {"ldu", decode_ld, "as ld"},
    {"st", decode_st, "as ld"},
    {"prefetch", decode_prefetch, "without effect"},
    {"prefetchu", decode_prefetch, "without effect"},
    {"applypriority", decode_prefetch, "without effect"},
    {"discard", decode_prefetch, "without effect"},
    {"createpolicy", decode_createpolicy, "without effect"},
    {"atom", decode_atomic,
     "and or xor exch add inc dec min max cas; integers, f16 bf16 f16x2 bf16x2 f32 f64, vectors"},
    {"red", decode_atomic, "as atom"},
};

}  // namespace

Family memory_family() { return {"memory", kEntries, std::size(kEntries)}; }

}  // namespace tcgen05::vsm

// Instructions of a whole warp (PTX ISA 9.7.9.6, 9.7.13): elect, shfl, vote, match, redux, activemask,
// bar.warp.
#include <iterator>

#include "vsm/barriers.h"
#include "vsm/checker.h"
#include "vsm/ops/common.h"
#include "vsm/ops/families.h"

namespace tcgen05::vsm {

bool gathered(Warp& w, Mask members, Mask m) {
  Mask wanted = members & w.alive;
  if ((m & wanted) == wanted) return true;
  Group& g = w.group();
  if ((g.mask & wanted) == wanted)
    throw Fault{"the member mask " + hex(members) +
                    " names lanes that do not execute this instruction (they are predicated off)",
                first_lane(m)};
  g.converging = true;
  g.wanted = wanted;
  return false;
}

namespace {

using Kind = Operand::Kind;

// Puts together the lanes that the mask in `src[4]` names; every executing lane must be one of them.
bool together(Warp& w, const Instr& in, Mask m) {
  Mask members = w.in<uint32_t>(in.src[4])[first_lane(m)];
  if (m & ~members)
    throw Fault{"lane is not in the member mask " + hex(members) + " of the instruction that it executes",
                first_lane(m & ~members)};
  return gathered(w, members, m);
}

void member_mask(Decoder& d, const Operand& x) { d.in.src[4] = d.src(x, Type::u32); }

// Lanes of one group may name different member masks, the tiles of a warp: each set executes by itself. Sets
// that lack lanes wait, the others go ahead.
template <Handler kEach>
Flow by_members(Warp& w, const Instr& in, Mask m) {
  const uint32_t* members = w.in<uint32_t>(in.src[4]);
  auto same = [&](Mask rest) {
    Mask set = 0;
    for_lanes(rest, [&](int i) { set |= static_cast<Mask>(members[i] == members[first_lane(rest)]) << i; });
    return set;
  };
  if (same(m) == m) return kEach(w, in, m);
  Mask done = 0, wanted = 0;
  for (Mask rest = m; rest;) {
    const Mask set = same(rest), missing = members[first_lane(rest)] & w.alive & ~m;
    rest &= ~set;
    if (missing) {
      if (!gathered(w, missing | set, set)) wanted |= missing | set;
    } else {
      kEach(w, in, set);
      done |= set;
    }
  }
  if (!wanted) return Flow::next;
  w.group().wanted = wanted;
  if (done) {
    Group ahead = w.group();
    ahead.mask = done;
    ahead.converging = false;
    ++ahead.pc;
    w.group().mask &= ~done;
    w.groups.push_back(std::move(ahead));
  }
  return Flow::wait;
}

Flow elect(Warp& w, const Instr& in, Mask m) {
  if (!together(w, in, m)) return Flow::wait;
  int leader = first_lane(m);
  auto* d = w.out<uint32_t>(in.dst);
  for_lanes(m, [&](int i) { d[i] = static_cast<uint32_t>(leader); });
  w.set_predicate(in.dst2, m, Mask{1} << leader);
  return Flow::next;
}

void decode_elect(Decoder& d) {
  d.need_operands(2);
  const Operand& out = d.operand(0);
  if (out.kind != Kind::pair) d.fail("elect.sync needs a destination d|p");
  d.in.dst = d.dst_or_sink(out.list[0], Type::b32);
  d.in.dst2 = d.pred_dst(out.list[1]);
  member_mask(d, d.operand(1));
  d.in.fn = by_members<elect>;
}

enum ShuffleMode { kUp, kDown, kButterfly, kIndex };

template <ShuffleMode kMode>
Flow shfl(Warp& w, const Instr& in, Mask m) {
  if (in.src[4] != kNoRef && !together(w, in, m)) return Flow::wait;
  auto* d = w.out<uint32_t>(in.dst);
  auto *b = w.in<uint32_t>(in.src[1]), *c = w.in<uint32_t>(in.src[2]);
  uint32_t a[32];
  std::memcpy(a, w.in<uint32_t>(in.src[0]), sizeof a);
  Mask valid = 0;
  for_lanes(m, [&](int i) {
    int lane = i, segment = static_cast<int>(c[i] >> 8 & 31), clamp = static_cast<int>(c[i] & 31),
        n = static_cast<int>(b[i] & 31);
    int most = (lane & segment) | (clamp & ~segment), least = lane & segment;
    int from = kMode == kUp          ? lane - n
               : kMode == kDown      ? lane + n
               : kMode == kButterfly ? lane ^ n
                                     : least | (n & ~segment);
    bool ok = kMode == kUp ? from >= most : from <= most;
    if (!ok) from = lane;
    valid |= static_cast<Mask>(ok) << i;
    d[i] = a[from & 31];
  });
  if (in.dst2 != kNoRef) w.set_predicate(in.dst2, m, valid);
  return Flow::next;
}

void decode_shfl(Decoder& d) {
  bool sync = d.take("sync");
  static constexpr Handler kModes[] = {shfl<kUp>, shfl<kDown>, shfl<kButterfly>, shfl<kIndex>};
  static constexpr Handler kSyncModes[] = {by_members<shfl<kUp>>, by_members<shfl<kDown>>,
                                           by_members<shfl<kButterfly>>, by_members<shfl<kIndex>>};
  int mode = d.need_any({"up", "down", "bfly", "idx"});
  d.type_of({Type::b32});
  d.need_operands(sync ? 5 : 4);
  const Operand& out = d.operand(0);
  if (out.kind == Kind::pair) {
    d.in.dst = d.dst_or_sink(out.list[0], Type::b32);
    d.in.dst2 = d.pred_dst(out.list[1]);
  } else {
    d.in.dst = d.dst(out, Type::b32);
  }
  for (size_t i = 0; i < 3; ++i) d.in.src[i] = d.src(d.operand(i + 1), Type::b32);
  if (sync) member_mask(d, d.operand(4));
  d.in.fn = sync ? kSyncModes[mode] : kModes[mode];
}

Flow vote(Warp& w, const Instr& in, Mask m) {
  if (in.src[4] != kNoRef && !together(w, in, m)) return Flow::wait;
  Mask p = (w.predicate(in.src[0]) ^ (in.u[0] ? ~Mask{0} : 0)) & m;
  if (in.u[1] == 3) {
    auto* d = w.out<uint32_t>(in.dst);
    for_lanes(m, [&](int i) { d[i] = p; });
    return Flow::next;
  }
  bool yes = in.u[1] == 0 ? p == m : in.u[1] == 1 ? p != 0 : p == 0 || p == m;
  w.set_predicate(in.dst, m, yes ? ~Mask{0} : 0);
  return Flow::next;
}

void decode_vote(Decoder& d) {
  bool sync = d.take("sync");
  d.in.u[1] = static_cast<uint8_t>(d.need_any({"all", "any", "uni", "ballot"}));
  d.type_of({d.in.u[1] == 3 ? Type::b32 : Type::pred});
  d.need_operands(sync ? 3 : 2);
  d.in.dst = d.in.u[1] == 3 ? d.dst(d.operand(0), Type::b32) : d.pred_dst(d.operand(0));
  bool negated = false;
  d.in.src[0] = d.pred_src(d.operand(1), &negated);
  d.in.u[0] = negated;
  if (sync) member_mask(d, d.operand(2));
  d.in.fn = sync ? by_members<vote> : vote;
}

Flow activemask(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<uint32_t>(in.dst);
  for_lanes(m, [&](int i) { d[i] = m; });
  return Flow::next;
}

void decode_activemask(Decoder& d) {
  d.type_of({Type::b32});
  d.need_operands(1);
  d.in.dst = d.dst(d.operand(0), Type::b32);
  d.in.fn = activemask;
}

template <class S>
Flow match(Warp& w, const Instr& in, Mask m) {
  if (!together(w, in, m)) return Flow::wait;
  auto* d = w.out<uint32_t>(in.dst);
  S a[32];
  std::memcpy(a, w.in<S>(in.src[0]), sizeof a);
  Mask equal[32] = {};
  for_lanes(m,
            [&](int i) { for_lanes(m, [&](int j) { equal[i] |= static_cast<Mask>(a[i] == a[j]) << j; }); });
  bool all = equal[first_lane(m)] == m;
  for_lanes(m, [&](int i) { d[i] = in.u[0] ? (all ? m : 0) : equal[i]; });
  if (in.dst2 != kNoRef) w.set_predicate(in.dst2, m, all ? ~Mask{0} : 0);
  return Flow::next;
}

void decode_match(Decoder& d) {
  d.need("sync");
  d.in.u[0] = d.need_any({"any", "all"}) == 1;
  Type t = d.type_of({Type::b32, Type::b64});
  d.need_operands(3);
  const Operand& out = d.operand(0);
  if (out.kind == Kind::pair && d.in.u[0]) {
    d.in.dst = d.dst_or_sink(out.list[0], Type::b32);
    d.in.dst2 = d.pred_dst(out.list[1]);
  } else {
    d.in.dst = d.dst(out, Type::b32);
  }
  d.in.src[0] = d.src(d.operand(1), t);
  member_mask(d, d.operand(2));
  d.in.fn = t == Type::b32 ? by_members<match<uint32_t>> : by_members<match<uint64_t>>;
}

struct Redux {
  int op;
  bool is_signed, real, abs, nan;
};

Flow redux(Warp& w, const Instr& in, Mask m) {
  if (!together(w, in, m)) return Flow::wait;
  const auto& r = *static_cast<const Redux*>(in.aux);
  auto* a = w.in<uint32_t>(in.src[0]);
  bool first = true;
  uint32_t v = 0;
  for_lanes(m, [&](int i) {
    uint32_t x = a[i];
    if (r.real && r.abs) x &= 0x7fffffff;
    if (first) {
      v = x;
      first = false;
      return;
    }
    switch (r.op) {
      case 0:
        v &= x;
        break;
      case 1:
        v |= x;
        break;
      case 2:
        v ^= x;
        break;
      case 3:
        v += x;
        break;
      default: {
        bool min = r.op == 4;
        if (r.real) {
          float f = from_slot<float>(v), g = from_slot<float>(x);
          if (f != f || g != g) {
            v = r.nan ? 0x7fffffff : f != f ? x : v;
          } else {
            // -0 is below +0
            bool less = g < f || (g == f && (x >> 31) > (v >> 31));
            v = min == less ? x : v;
            if (!min && g == f && (v >> 31)) v = x & v;
          }
        } else {
          bool less = r.is_signed ? static_cast<int32_t>(x) < static_cast<int32_t>(v) : x < v;
          v = min == less ? x : v;
        }
      }
    }
  });
  if (r.real && from_slot<float>(v) != from_slot<float>(v)) v = 0x7fffffff;
  auto* d = w.out<uint32_t>(in.dst);
  for_lanes(m, [&](int i) { d[i] = v; });
  return Flow::next;
}

void decode_redux(Decoder& d) {
  d.need("sync");
  auto r = std::make_shared<Redux>();
  r->op = d.need_any({"and", "or", "xor", "add", "min", "max"});
  r->abs = d.take("abs");
  r->nan = d.take("NaN");
  Type t = r->op < 3    ? d.type_of({Type::b32})
           : r->op == 3 ? d.type_of({Type::u32, Type::s32})
                        : d.type_of({Type::u32, Type::s32, Type::f32});
  r->is_signed = is_signed(t);
  r->real = t == Type::f32;
  if (!r->real && (r->abs || r->nan)) d.fail(".abs and .NaN are for .f32 only");
  d.need_operands(3);
  d.in.dst = d.dst(d.operand(0), t);
  d.in.src[0] = d.src(d.operand(1), t);
  member_mask(d, d.operand(2));
  d.own(r);
  d.in.fn = by_members<redux>;
}

Flow bar_warp(Warp& w, const Instr& in, Mask m) {
  if (!together(w, in, m)) return Flow::wait;
  if (w.checker) w.checker->warp_sync(w, m);
  return Flow::next;
}

void decode_bar_warp(Decoder& d) {
  d.need("sync");
  d.need_operands(1);
  member_mask(d, d.operand(0));
  d.in.fn = by_members<bar_warp>;
}

constexpr Entry kEntries[] = {
    {"elect.sync", decode_elect, "elects the lowest lane"},
    {"shfl", decode_shfl, "{.sync} .up .down .bfly .idx"},
    {"vote", decode_vote, "{.sync} .all .any .uni .ballot"},
    {"activemask", decode_activemask, ""},
    {"match", decode_match, ".any .all .b32 .b64"},
    {"redux", decode_redux, ".and .or .xor .add .min .max; .u32 .s32 .f32"},
    {"bar.warp", decode_bar_warp, ".sync"},
    {"barrier.warp", decode_bar_warp, ".sync"},
};

}  // namespace

Family warp_family() { return {"warps", kEntries, std::size(kEntries)}; }

}  // namespace tcgen05::vsm

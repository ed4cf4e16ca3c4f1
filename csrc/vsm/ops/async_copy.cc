// cp.async, and groups of asynchronous copies (PTX ISA 9.7.9.25).
#include "vsm/ops/async_copy.h"

#include <algorithm>
#include <iterator>

#include "vsm/checker.h"
#include "vsm/mbarrier.h"
#include "vsm/ops/address.h"
#include "vsm/ops/common.h"
#include "vsm/ops/families.h"
#include "vsm/trace.h"

namespace tcgen05::vsm {

using Kind = Operand::Kind;

Place take_place(Decoder& d, const Operand& x, Space named) {
  Place p;
  p.base = d.address(x, &p.offset, &p.wide);
  p.space = space_of(d, x, named);
  return p;
}

uint64_t address_of(const Warp& w, const Place& p, int lane) {
  uint64_t a = w.read(p.base, p.wide, lane) + p.offset;
  return p.wide ? a : static_cast<uint32_t>(a);
}

uint32_t shared_address_of(const Warp& w, const Place& p, const char* what, int lane) {
  uint64_t a = address_of(w, p, lane);
  if (p.space == Space::generic) {
    if (a >> kWindowBits << kWindowBits != kSharedWindow)
      throw Fault{std::string(what) + " address " + hex(a) + " is not in shared memory", lane};
    a -= kSharedWindow;
  }
  if (a >> 32) throw Fault{std::string(what) + " address " + hex(a) + " has more than 32 bits", lane};
  return static_cast<uint32_t>(a);
}

void check_shared(Warp& w, uint32_t address, uint64_t bytes, uint32_t align, const char* what, int lane) {
  if (address % align)
    throw Fault{std::string(what) + " address " + hex(address) + " is not aligned to " +
                    std::to_string(align) + " bytes",
                lane};
  Cta& owner = w.shared_owner(address, lane);
  uint32_t offset = address & kSharedOffsetMask;
  if (offset < kReservedShared || offset + bytes > owner.shared.size())
    throw Fault{std::string(what) + " [" + hex(address) + ", " + hex(address + bytes) + ") leaves the " +
                    std::to_string(owner.shared.size() - kReservedShared) +
                    " bytes of the CTA's shared memory",
                lane};
}

void start_async(Warp& w, const Instr& in, int lane, size_t queue, std::function<void()> effect) {
  w.cta->cluster->start(queue, [&w, &in, lane, effect = std::move(effect)] {
    try {
      effect();
    } catch (Fault& fault) {
      fault.lane = lane;
      fault.what += " (when it took effect)";
      report(w, in, fault);
    }
  });
}

void start_copy(Warp& w, const Instr& in, int lane, std::function<void()> effect) {
  start_async(w, in, lane, copy_queue(*w.cta->cluster, w.cta->rank), std::move(effect));
}

void note_copy(Cluster& c, Traffic::Where from, Traffic::Where to, uint64_t bytes, uint64_t times,
               uint32_t shared, uint32_t barrier) {
  c.traffic.count(from, false, bytes);
  c.traffic.count(to, true, bytes * times);
  if (!c.trace) return;
  if (barrier) {
    c.trace->note({{"shared", shared}, {"bytes", bytes}, {"mbarrier", barrier}});
  } else {
    c.trace->note({{"shared", shared}, {"bytes", bytes}});
  }
}

Copies& copies_of(Warp& w) {
  if (!w.copies) w.copies = std::make_shared<Copies>();
  return *static_cast<Copies*>(w.copies.get());
}

std::vector<uint32_t> multicast_barriers(uint32_t barrier, const std::vector<uint32_t>& ctas, int cta_group) {
  std::vector<uint32_t> out;
  for (uint32_t rank : ctas) {
    uint32_t target = cta_group == 2 ? (rank & ~1u) | (barrier >> kRankShift & 1) : rank;
    out.push_back((barrier & kSharedOffsetMask) | target << kRankShift);
  }
  return out;
}

std::vector<uint32_t> ranks_of(const Warp& w, uint32_t mask, int lane) {
  std::vector<uint32_t> out;
  size_t n = w.cta->cluster->ctas.size();
  if (!mask || mask >> n)
    throw Fault{"the mask of CTAs is " + hex(mask) + ", allowed: CTAs of this cluster of " +
                    std::to_string(n) + ", at least one",
                lane};
  for (uint32_t rank = 0; rank < n; ++rank)
    if (mask >> rank & 1) out.push_back(rank);
  return out;
}

namespace {

// ---- groups: u[0] bulk, u[1] .read; imm the number of groups that may be pending ----

CopyGroups& groups_of(Warp& w, const Instr& in, int lane) {
  Copies& c = copies_of(w);
  return (in.u[0] ? c.bulk : c.plain)[static_cast<size_t>(lane)];
}

Flow commit_group(Warp& w, const Instr& in, Mask m) {
  for_lanes(m, [&](int i) {
    groups_of(w, in, i).commit();
    if (w.checker) w.checker->group_commit(w, i, in.u[0]);
  });
  return Flow::next;
}

// a: the waiting lanes, with the kind of group in bits 32 and 33; b: the number of groups.
bool groups_reached(Warp& w, uint64_t a, uint64_t pending) {
  Copies& c = copies_of(w);
  bool reached = true;
  for_lanes(static_cast<Mask>(a), [&](int i) {
    const CopyGroups& g = (a >> 32 & 1 ? c.bulk : c.plain)[static_cast<size_t>(i)];
    reached = reached && g.reached(pending, a >> 33 & 1);
  });
  return reached;
}

constexpr WaitKind kGroupWait = {"asynchronous copies of lanes", groups_reached, false};

Flow wait_group(Warp& w, const Instr& in, Mask m) {
  if (w.checker) for_lanes(m, [&](int i) { w.checker->group_wait(w, i, in.u[0], in.imm); });
  uint64_t a = uint64_t{m} | uint64_t{in.u[0]} << 32 | uint64_t{in.u[1]} << 33;
  if (groups_reached(w, a, in.imm)) return Flow::next;
  return w.wait(kGroupWait, a, in.imm, Flow::wait_next);
}

void decode_wait_all(Decoder& d) {
  d.need_operands(0);
  d.in.fn = [](Warp& w, const Instr& in, Mask m) {
    commit_group(w, in, m);
    return wait_group(w, in, m);
  };
}

// ---- cp.async ----

struct CopyAsync {
  Place to, from;
  uint32_t bytes = 0;
  Ref source_bytes = kNoRef;  // 32-bit; the rest is zeros
  Ref ignore = kNoRef;        // predicate: all zeros
  bool ignore_negated = false;
};

struct LaneCopy {
  uint8_t* to;
  const uint8_t* from;
  uint32_t bytes;
};

Flow copy_async(Warp& w, const Instr& in, Mask m) {
  const auto& f = *static_cast<const CopyAsync*>(in.aux);
  auto copies = std::make_shared<std::array<LaneCopy, 32>>();
  Copies& groups = copies_of(w);
  Mask ignored = f.ignore == kNoRef ? 0 : w.predicate(f.ignore) ^ (f.ignore_negated ? ~Mask{0} : 0);
  for_lanes(m, [&](int i) {
    LaneCopy& c = (*copies)[static_cast<size_t>(i)];
    c.bytes = f.source_bytes == kNoRef ? f.bytes : w.in<uint32_t>(f.source_bytes)[i];
    if (c.bytes > f.bytes)
      throw Fault{"source size " + std::to_string(c.bytes) + " exceeds the copy's " +
                      std::to_string(f.bytes) + " bytes",
                  i};
    if (ignored >> i & 1) c.bytes = 0;
    uint64_t from = address_of(w, f.from, i);
    if (from % f.bytes)
      throw Fault{"source address " + hex(from) + " is not aligned to " + std::to_string(f.bytes) + " bytes",
                  i};
    c.from = c.bytes ? w.at(f.from.space, from, c.bytes, 1, i, false) : nullptr;
    c.to = w.at(f.to.space, address_of(w, f.to, i), f.bytes, f.bytes, i, true);
    ++groups.plain[static_cast<size_t>(i)].issued;
    if (w.checker) w.checker->group_write(w, static_cast<uint32_t>(address_of(w, f.to, i)), f.bytes, i);
  });
  uint32_t bytes = f.bytes;
  uint64_t all = uint64_t{bytes} * static_cast<uint64_t>(count_lanes(m));
  note_copy(*w.cta->cluster, Traffic::global, Traffic::shared, all, 1, w.shared_base, 0);
  start_copy(w, in, first_lane(m), [copies, m, bytes, &groups] {
    for_lanes(m, [&](int i) {
      const LaneCopy& c = (*copies)[static_cast<size_t>(i)];
      if (c.bytes) std::memcpy(c.to, c.from, c.bytes);
      if (c.bytes < bytes) std::memset(c.to + c.bytes, 0, bytes - c.bytes);
      CopyGroups& g = groups.plain[static_cast<size_t>(i)];
      ++g.read;
      ++g.done;
    });
  });
  return Flow::next;
}

void decode_copy_async(Decoder& d) {
  auto f = std::make_shared<CopyAsync>();
  bool global_only = d.need_any({"ca", "cg"}) == 1;
  bool policy = take_cache_modifiers(d);
  d.need_any({"shared", "shared::cta"});
  d.need("global");
  d.need_operands(3, policy ? 5 : 4);
  f->to = take_place(d, d.operand(0), Space::shared);
  f->from = take_place(d, d.operand(1), Space::global);
  f->bytes = static_cast<uint32_t>(d.constant(d.operand(2), "the size of cp.async"));
  if (f->bytes != 16 && (global_only || (f->bytes != 4 && f->bytes != 8)))
    d.fail("size is " + std::to_string(f->bytes) +
           ", allowed: " + (global_only ? "16 with .cg" : "4, 8, 16 with .ca"));
  if (d.operands() == (policy ? 5u : 4u)) {
    const Operand& x = d.operand(3);
    if (d.register_type(x) == Type::pred) {
      f->ignore = d.pred_src(x, &f->ignore_negated);
    } else {
      f->source_bytes = d.src(x, Type::u32);
    }
  }
  if (policy) d.src(d.operand(d.operands() - 1), Type::b64);
  d.own(f);
  d.in.fn = copy_async;
}

// Arrives when the lane's earlier cp.async are complete; u[2]: without .noinc, one more arrival is expected.
Flow arrive_copies(Warp& w, const Instr& in, Mask m) {
  const auto& place = *static_cast<const Place*>(in.aux);
  Cluster& c = *w.cta->cluster;
  for_lanes(m, [&](int i) {
    uint32_t address = shared_address_of(w, place, "mbarrier", i);
    MbarrierState s = load_mbarrier(c, address, i);
    if (in.u[2]) {
      if (++s.pending > kMbarrierMaxCount)
        throw Fault{"too many arrivals are pending at the mbarrier at " + hex(address), i};
      store_mbarrier(c, address, s, i);
    }
    Knowledge brings;
    if (w.checker) {
      w.checker->mbarrier(w, address, i);
      brings = w.checker->group_completion(w, i);
    }
    start_copy(w, in, i, [&c, address, brings = std::move(brings)] {
      if (c.checker) c.checker->mbarrier_arrive(address, brings);
      mbarrier_arrive(c, address, 1, -1);
    });
  });
  return Flow::next;
}

void decode_arrive_copies(Decoder& d) {
  d.in.u[2] = !d.take("noinc");
  Space space = take_space(d);
  d.type_of({Type::b64});
  d.need_operands(1);
  d.own(std::make_shared<Place>(take_place(d, d.operand(0), space)));
  d.in.fn = arrive_copies;
}

constexpr Entry kEntries[] = {
    {"cp.async", decode_copy_async, ".ca .cg; 4, 8, 16 bytes; source size or ignore-src"},
    {"cp.async.commit_group", [](Decoder& d) { decode_commit_group(d, false); }, ""},
    {"cp.async.wait_group", [](Decoder& d) { decode_wait_group(d, false); }, ""},
    {"cp.async.wait_all", decode_wait_all, ""},
    {"cp.async.mbarrier.arrive", decode_arrive_copies, "{.noinc}"},
};

}  // namespace

void decode_commit_group(Decoder& d, bool bulk) {
  d.need_operands(0);
  d.in.u[0] = bulk;
  d.in.fn = commit_group;
}

void decode_wait_group(Decoder& d, bool bulk) {
  d.in.u[0] = bulk;
  d.in.u[1] = bulk && d.take("read");
  d.need_operands(1);
  d.in.imm = d.constant(d.operand(0), "the number of groups");
  d.in.fn = wait_group;
}

Family async_copy_family() { return {"asynchronous copies", kEntries, std::size(kEntries)}; }

}  // namespace tcgen05::vsm

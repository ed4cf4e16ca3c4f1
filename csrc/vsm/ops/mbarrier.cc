// mbarrier (PTX ISA 9.7.13.15).
#include "vsm/mbarrier.h"

#include <iterator>

#include "vsm/checker.h"
#include "vsm/ops/address.h"
#include "vsm/ops/common.h"
#include "vsm/ops/families.h"
#include "vsm/trace.h"

namespace tcgen05::vsm {
namespace {

using Kind = Operand::Kind;

uint8_t* object(Cluster& c, uint32_t address, int lane) {
  Cta& cta = c.cta(address >> kRankShift, lane);
  uint32_t offset = address & kSharedOffsetMask;
  if (offset % 8) throw Fault{"mbarrier address " + hex(address) + " is not aligned to 8 bytes", lane};
  if (offset < kReservedShared || offset + 8 > cta.shared.size())
    throw Fault{"mbarrier address " + hex(address) + " is outside the shared memory", lane};
  return cta.shared.data() + offset;
}

}  // namespace

uint64_t encode_mbarrier(const MbarrierState& s) {
  return uint64_t{s.pending} | uint64_t{s.expected} << 20 | (static_cast<uint64_t>(s.tx) & 0x3fffff) << 40 |
         uint64_t{s.phase} << 62 | uint64_t{1} << 63;
}

MbarrierState decode_mbarrier(uint64_t b) {
  MbarrierState s;
  s.pending = b & kMbarrierMaxCount;
  s.expected = b >> 20 & kMbarrierMaxCount;
  s.tx = static_cast<int32_t>(static_cast<uint32_t>(b >> 40 & 0x3fffff) << 10) >> 10;
  s.phase = b >> 62 & 1;
  return s;
}

MbarrierState load_mbarrier(Cluster& c, uint32_t address, int lane) {
  uint64_t b;
  std::memcpy(&b, object(c, address, lane), 8);
  if (!(b >> 63)) throw Fault{"no initialised mbarrier at shared address " + hex(address), lane};
  return decode_mbarrier(b);
}

void store_mbarrier(Cluster& c, uint32_t address, MbarrierState s, int lane) {
  bool completes = s.pending == 0 && s.tx == 0;
  if (completes) {
    if (c.checker) c.checker->mbarrier_complete(address);
    s.phase ^= 1;
    s.pending = s.expected;
  }
  if (c.trace) c.trace->mbarrier(c.cta(address >> kRankShift, lane), address, s, completes);
  uint64_t b = encode_mbarrier(s);
  std::memcpy(object(c, address, lane), &b, 8);
  ++c.progress;
}

void mbarrier_arrive(Cluster& c, uint32_t address, uint32_t count, int lane) {
  MbarrierState s = load_mbarrier(c, address, lane);
  if (count == 0 || count > s.pending)
    throw Fault{"arrival of " + std::to_string(count) + " at the mbarrier at " + hex(address) +
                    ", which has " + std::to_string(s.pending) + " arrivals pending of " +
                    std::to_string(s.expected),
                lane};
  s.pending -= count;
  store_mbarrier(c, address, s, lane);
}

void mbarrier_add_tx(Cluster& c, uint32_t address, int64_t bytes, int lane) {
  MbarrierState s = load_mbarrier(c, address, lane);
  int64_t tx = s.tx + bytes;
  if (tx > (1 << 20) - 1 || tx < -(1 << 20) + 1)
    throw Fault{"transaction count of the mbarrier at " + hex(address) + " overflows: " + std::to_string(tx),
                lane};
  s.tx = static_cast<int32_t>(tx);
  store_mbarrier(c, address, s, lane);
}

namespace {

// Shared addresses of the lanes (generic ones are translated).
void addresses_of(Warp& w, const Instr& in, Mask m, uint32_t* out) {
  uint64_t a[32];
  lane_addresses(w, in.src[0], in.u[1], in.imm, m, a);
  for_lanes(m, [&](int i) {
    if (static_cast<Space>(in.u[0]) == Space::generic) {
      if (a[i] >> kWindowBits << kWindowBits != kSharedWindow)
        throw Fault{"mbarrier address " + hex(a[i]) + " is not in shared memory", i};
      a[i] -= kSharedWindow;
    }
    if (a[i] >> 32) throw Fault{"shared address " + hex(a[i]) + " has more than 32 bits", i};
    out[i] = static_cast<uint32_t>(a[i]);
  });
  if (Trace* t = w.cta->cluster->trace.get())
    t->note(
        {{"mbarrier", out[first_lane(m)] & kSharedOffsetMask}, {"rank", out[first_lane(m)] >> kRankShift}});
}

void decode_address(Decoder& d, const Operand& x) {
  Space space = take_space(d);
  if (space != Space::generic && space != Space::shared && space != Space::shared_cluster)
    d.fail("an mbarrier is in shared memory");
  bool wide = false;
  d.in.src[0] = d.address(x, &d.in.imm, &wide);
  d.in.u[1] = wide;
  d.in.u[0] = static_cast<uint8_t>(space_of(d, x, space));
}

Flow init(Warp& w, const Instr& in, Mask m) {
  uint32_t a[32];
  addresses_of(w, in, m, a);
  auto* count = w.in<uint32_t>(in.src[1]);
  Cluster& c = *w.cta->cluster;
  for_lanes(m, [&](int i) {
    if (count[i] == 0 || count[i] > kMbarrierMaxCount)
      throw Fault{"mbarrier count must be 1 to " + std::to_string(kMbarrierMaxCount) + ", found " +
                      std::to_string(count[i]),
                  i};
    MbarrierState s;
    s.pending = s.expected = count[i];
    object(c, a[i], i);  // must be shared memory
    if (w.checker) w.checker->mbarrier_init(w, a[i], i);
    store_mbarrier(c, a[i], s, i);
  });
  return Flow::next;
}

void decode_init(Decoder& d) {
  d.need_operands(2);
  decode_address(d, d.operand(0));
  d.type_of({Type::b64});
  d.in.src[1] = d.src(d.operand(1), Type::u32);
  d.in.fn = init;
}

Flow inval(Warp& w, const Instr& in, Mask m) {
  uint32_t a[32];
  addresses_of(w, in, m, a);
  for_lanes(m, [&](int i) {
    load_mbarrier(*w.cta->cluster, a[i], i);
    if (w.checker) w.checker->mbarrier_inval(w, a[i], i);
    std::memset(object(*w.cta->cluster, a[i], i), 0, 8);
  });
  return Flow::next;
}

void decode_inval(Decoder& d) {
  d.need_operands(1);
  decode_address(d, d.operand(0));
  d.type_of({Type::b64});
  d.in.fn = inval;
}

template <int kSign>
Flow change_tx(Warp& w, const Instr& in, Mask m) {
  uint32_t a[32];
  addresses_of(w, in, m, a);
  auto* bytes = w.in<uint32_t>(in.src[1]);
  for_lanes(m, [&](int i) {
    if (w.checker) w.checker->mbarrier(w, a[i], i);
    mbarrier_add_tx(*w.cta->cluster, a[i], kSign * int64_t{bytes[i]}, i);
  });
  return Flow::next;
}

template <int kSign>
void decode_tx(Decoder& d) {
  take_order_modifiers(d);
  d.need_operands(2);
  decode_address(d, d.operand(0));
  d.type_of({Type::b64});
  d.in.src[1] = d.src(d.operand(1), Type::u32);
  d.in.fn = change_tx<kSign>;
}

// u[2]: expect_tx, u[3]: drop, u[4]: .relaxed. src[1]: transaction bytes or arrivals.
Flow arrive(Warp& w, const Instr& in, Mask m) {
  uint32_t a[32];
  addresses_of(w, in, m, a);
  Cluster& c = *w.cta->cluster;
  for_lanes(m, [&](int i) {
    uint32_t operand = in.src[1] == kNoRef ? 1 : w.in<uint32_t>(in.src[1])[i];
    uint32_t count = in.u[2] ? 1 : operand;
    MbarrierState before = load_mbarrier(c, a[i], i);
    if (in.dst != kNoRef) w.out<uint64_t>(in.dst)[i] = encode_mbarrier(before);
    if (in.u[2]) {  // expect-tx comes first: the phase cannot complete between the two
      int64_t tx = int64_t{before.tx} + operand;
      if (tx > (1 << 20) - 1)
        throw Fault{"transaction count of the mbarrier at " + hex(a[i]) + " overflows: " + std::to_string(tx),
                    i};
      before.tx = static_cast<int32_t>(tx);
    }
    if (count == 0 || count > before.pending)
      throw Fault{"arrival of " + std::to_string(count) + " at the mbarrier at " + hex(a[i]) +
                      ", which has " + std::to_string(before.pending) + " arrivals pending of " +
                      std::to_string(before.expected),
                  i};
    before.pending -= count;
    if (in.u[3]) before.expected -= std::min(count, before.expected);
    if (w.checker) w.checker->arrive(w, w.checker->mbarrier(w, a[i], i), in.u[4]);
    store_mbarrier(c, a[i], before, i);
  });
  return Flow::next;
}

void decode_arrive(Decoder& d) {
  bool drop = d.root() == "mbarrier.arrive_drop";
  d.in.u[2] = d.take("expect_tx");
  d.take("noComplete");
  d.in.u[4] = take_order_modifiers(d).relaxed;
  // `state, [addr] {, n}`, `_, [addr] {, n}` or `[addr] {, n}`
  size_t at = d.operand(0).kind == Kind::address ? 0 : 1;
  d.need_operands(at + (d.in.u[2] ? 2 : 1), at + 2);
  decode_address(d, d.operand(at));
  d.type_of({Type::b64});
  if (at && d.operand(0).kind != Kind::sink) d.in.dst = d.dst(d.operand(0), Type::b64);
  if (d.operands() == at + 2) d.in.src[1] = d.src(d.operand(at + 1), Type::u32);
  d.in.u[3] = drop;
  d.in.fn = arrive;
}

bool phase_done(Cluster& c, uint32_t address, uint32_t parity) {
  Cta& cta = *c.ctas[address >> kRankShift];
  uint64_t b;
  std::memcpy(&b, cta.shared.data() + (address & kSharedOffsetMask), 8);
  return !(b >> 63) || (b >> 62 & 1) != parity;
}

constexpr WaitKind kMbarrierWait = {"mbarrier",
                                    [](Warp& w, uint64_t address, uint64_t parity) {
                                      return phase_done(*w.cta->cluster, static_cast<uint32_t>(address),
                                                        static_cast<uint32_t>(parity));
                                    },
                                    true};

// True once the phase with the given parity (u[2]) or of the given state is over. Both wait instructions may
// answer "not yet"; here they do so only when nothing else can happen, and in strict mode when first asked in
// vain. u[4]: .relaxed.
Flow test(Warp& w, const Instr& in, Mask m) {
  uint32_t a[32];
  addresses_of(w, in, m, a);
  Cluster& c = *w.cta->cluster;
  Mask done = 0;
  uint32_t parity[32];
  for_lanes(m, [&](int i) {
    parity[i] = in.u[2] ? w.in<uint32_t>(in.src[1])[i]
                        : static_cast<uint32_t>(w.in<uint64_t>(in.src[1])[i] >> 62 & 1);
    if (parity[i] > 1) throw Fault{"phase parity must be 0 or 1, found " + std::to_string(parity[i]), i};
    done |= static_cast<Mask>(load_mbarrier(c, a[i], i).phase != parity[i]) << i;
  });
  if (w.checker) for_lanes(m, [&](int i) { w.checker->mbarrier(w, a[i], i); });
  if (done != m && !w.group().timed_out) {
    int lane = first_lane(m & ~done);
    if (!w.checker || !w.checker->answers_not_yet(w, a[lane], parity[lane]))
      return w.wait(kMbarrierWait, a[lane], parity[lane]);
  }
  if (w.checker) {
    for_lanes(done, [&](int i) {
      w.checker->wait(w, w.checker->mbarrier(w, a[i], i), in.u[4], Mask{1} << i);
      w.checker->answered(w, a[i], parity[i]);
    });
  }
  w.set_predicate(in.dst, m, done);
  return Flow::next;
}

void decode_test(Decoder& d) {
  d.in.u[2] = d.take("parity");
  d.in.u[4] = take_order_modifiers(d).relaxed;
  d.need_operands(3, 4);
  decode_address(d, d.operand(1));
  d.type_of({Type::b64});
  d.in.dst = d.pred_dst(d.operand(0));
  d.in.src[1] = d.src(d.operand(2), d.in.u[2] ? Type::u32 : Type::b64);
  if (d.operands() == 4) d.src(d.operand(3), Type::u32);  // a time limit
  d.in.fn = test;
}

Flow pending_count(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<uint32_t>(in.dst);
  auto* s = w.in<uint64_t>(in.src[0]);
  for_lanes(m, [&](int i) { d[i] = decode_mbarrier(s[i]).pending; });
  return Flow::next;
}

void decode_pending_count(Decoder& d) {
  d.type_of({Type::b64});
  d.need_operands(2);
  d.in.dst = d.dst(d.operand(0), Type::u32);
  d.in.src[0] = d.src(d.operand(1), Type::b64);
  d.in.fn = pending_count;
}

constexpr Entry kEntries[] = {
    {"mbarrier.init", decode_init, ""},
    {"mbarrier.inval", decode_inval, ""},
    {"mbarrier.expect_tx", decode_tx<1>, ""},
    {"mbarrier.complete_tx", decode_tx<-1>, ""},
    {"mbarrier.arrive", decode_arrive, "{.expect_tx} {.noComplete}"},
    {"mbarrier.arrive_drop", decode_arrive, "{.expect_tx} {.noComplete}"},
    {"mbarrier.test_wait", decode_test, "{.parity}"},
    {"mbarrier.try_wait", decode_test, "{.parity}"},
    {"mbarrier.pending_count", decode_pending_count, ""},
};

}  // namespace

Family mbarrier_family() { return {"mbarrier", kEntries, std::size(kEntries)}; }

}  // namespace tcgen05::vsm

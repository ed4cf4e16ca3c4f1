// Barriers of CTAs and clusters, and fences (PTX ISA 9.7.13).
#include <iterator>

#include "vsm/barriers.h"
#include "vsm/checker.h"
#include "vsm/ops/common.h"
#include "vsm/ops/families.h"
#include "vsm/trace.h"

namespace tcgen05::vsm {
namespace {

void complete(Cta& cta, NamedBarrier& b) {
  if (Checker* c = cta.cluster->checker.get())
    c->complete(c->barrier(cta, static_cast<uint32_t>(&b - cta.barriers.data())));
  b.result_count = b.count;
  b.result_all = b.all;
  b.result_any = b.any;
  b.arrived = b.expected = b.count = 0;
  b.all = true;
  b.any = false;
  ++b.generation;
  ++cta.cluster->progress;
}

bool is_complete(const Cta& cta, const NamedBarrier& b) {
  return b.arrived && b.arrived >= (b.expected ? b.expected : cta.live_threads);
}

void complete_cluster(Cluster& c) {
  if (!c.barrier_arrived || c.barrier_arrived < c.live_threads) return;
  if (c.checker) c.checker->complete(c.checker->cluster_barrier());
  c.barrier_arrived = 0;
  ++c.barrier_generation;
  ++c.progress;
}

constexpr WaitKind kBarrierWait = {
    "barrier",
    [](Warp& w, uint64_t id, uint64_t generation) { return w.cta->barriers[id].generation != generation; },
    false};

// u[0]: 0 sync, 1 arrive, 2 red; u[1]: 0 popc, 1 and, 2 or; u[2]: negated predicate.
Flow bar(Warp& w, const Instr& in, Mask m) {
  Group& g = w.group();
  int lane = first_lane(m);
  uint32_t id = w.in<uint32_t>(in.src[0])[lane];
  uint32_t count = in.src[1] == kNoRef ? 0 : w.in<uint32_t>(in.src[1])[lane];
  if (id > 15) throw Fault{"barrier " + std::to_string(id) + " does not exist; barriers are 0 to 15", lane};
  NamedBarrier& b = w.cta->barriers[id];
  if (Trace* t = w.cta->cluster->trace.get()) t->note({{"barrier", id}, {"threads", count}});
  if (g.stage == 0) {
    for_lanes(m, [&](int i) {
      if (w.in<uint32_t>(in.src[0])[i] != id)
        throw Fault{"threads of a warp name different barriers in one instruction", i};
    });
    if (in.src[1] != kNoRef && (count == 0 || count % 32))
      throw Fault{
          "thread count of a barrier must be a positive multiple of 32, found " + std::to_string(count),
          lane};
    if (b.arrived && b.expected != count)
      throw Fault{"barrier " + std::to_string(id) + " is in use with thread count " +
                      std::to_string(b.expected) + ", this instruction names " + std::to_string(count),
                  lane};
    if (in.u[0] == 2) {
      Mask p = (w.predicate(in.src[2]) ^ (in.u[2] ? ~Mask{0} : 0)) & m;
      b.count += static_cast<uint32_t>(count_lanes(p));
      b.all = b.all && p == m;
      b.any = b.any || p;
    }
    b.expected = count;
    // A whole warp counts as 32 threads when a count is given, even if fewer exist (PTX ISA 9.7.13.1).
    b.arrived += count && m == w.alive ? 32 : static_cast<uint32_t>(count_lanes(m));
    ++w.cta->cluster->progress;
    if (w.checker) w.checker->arrive(w, w.checker->barrier(*w.cta, id), false);
    uint32_t generation = b.generation;
    if (is_complete(*w.cta, b)) complete(*w.cta, b);
    if (in.u[0] == 1) return Flow::next;
    if (b.generation == generation) {
      g.stage = 1;
      return w.wait(kBarrierWait, id, generation);
    }
  }
  g.stage = 0;
  if (w.checker) w.checker->wait(w, w.checker->barrier(*w.cta, id), false, m);
  if (in.u[0] == 2) {
    if (in.u[1] == 0) {
      auto* d = w.out<uint32_t>(in.dst);
      for_lanes(m, [&](int i) { d[i] = b.result_count; });
    } else {
      w.set_predicate(in.dst, m, (in.u[1] == 1 ? b.result_all : b.result_any) ? ~Mask{0} : 0);
    }
  }
  return Flow::next;
}

void decode_bar(Decoder& d) {
  d.take("cta");
  int op = d.need_any({"sync", "arrive", "red"});
  bool aligned = d.take("aligned");
  d.in.aligned = aligned || d.root() == "bar";
  d.in.u[0] = static_cast<uint8_t>(op);
  if (op == 2) {
    d.in.u[1] = static_cast<uint8_t>(d.need_any({"popc", "and", "or"}));
    d.type_of({d.in.u[1] == 0 ? Type::u32 : Type::pred});
    d.need_operands(3, 4);
    d.in.dst = d.in.u[1] == 0 ? d.dst(d.operand(0), Type::u32) : d.pred_dst(d.operand(0));
    d.in.src[0] = d.src(d.operand(1), Type::u32);
    if (d.operands() == 4) d.in.src[1] = d.src(d.operand(2), Type::u32);
    bool negated = false;
    d.in.src[2] = d.pred_src(d.operand(d.operands() - 1), &negated);
    d.in.u[2] = negated;
  } else {
    d.need_operands(op == 1 ? 2 : 1, 2);
    d.in.src[0] = d.src(d.operand(0), Type::u32);
    if (d.operands() == 2) d.in.src[1] = d.src(d.operand(1), Type::u32);
  }
  d.in.fn = bar;
}

// ---- clusters ----

// u[0]: .relaxed.
Flow cluster_arrive(Warp& w, const Instr& in, Mask m) {
  Cluster& c = *w.cta->cluster;
  for_lanes(m, [&](int i) {
    uint32_t& phase = w.lanes[static_cast<size_t>(i)].cluster_phase;
    if (phase) throw Fault{"barrier.cluster.arrive a second time without barrier.cluster.wait", i};
    phase = c.barrier_generation + 1;
  });
  if (w.checker) w.checker->arrive(w, w.checker->cluster_barrier(), in.u[0]);
  c.barrier_arrived += static_cast<uint32_t>(count_lanes(m));
  ++c.progress;
  complete_cluster(c);
  return Flow::next;
}

constexpr WaitKind kClusterWait = {
    "the cluster's barrier",
    [](Warp& w, uint64_t, uint64_t generation) { return w.cta->cluster->barrier_generation != generation; },
    false};

Flow cluster_wait(Warp& w, const Instr&, Mask m) {
  Cluster& c = *w.cta->cluster;
  bool pending = false;
  for_lanes(m, [&](int i) {
    uint32_t phase = w.lanes[static_cast<size_t>(i)].cluster_phase;
    if (!phase) throw Fault{"barrier.cluster.wait without barrier.cluster.arrive", i};
    pending |= phase - 1 == c.barrier_generation;
  });
  if (pending) return w.wait(kClusterWait, 0, c.barrier_generation);
  for_lanes(m, [&](int i) { w.lanes[static_cast<size_t>(i)].cluster_phase = 0; });
  if (w.checker) w.checker->wait(w, w.checker->cluster_barrier(), false, m);
  return Flow::next;
}

void decode_cluster_barrier(Decoder& d) {
  bool arrive = d.need_any({"arrive", "wait"}) == 0;
  d.in.u[0] = d.take_any({"release", "acquire", "relaxed"}) == 2;
  d.in.aligned = d.take("aligned");
  d.need_operands(0);
  d.in.fn = arrive ? cluster_arrive : cluster_wait;
}

// ---- fences ----

Flow no_fence(Warp&, const Instr&, Mask) { return Flow::next; }

Flow memory_fence(Warp& w, const Instr&, Mask) {
  if (w.checker) w.checker->memory_fence(w);
  return Flow::next;
}

Flow proxy_fence(Warp& w, const Instr&, Mask) {
  if (w.checker) w.checker->proxy_fence(w);
  return Flow::next;
}

// Fences have an effect in strict mode only: memory is sequentially consistent here.
void decode_fence(Decoder& d) {
  bool proxy = d.take("proxy");
  bool async = !d.take_prefix("async").empty(), global = d.take("global");
  while (d.take_any({"sc",
                     "acq_rel",
                     "acquire",
                     "release",
                     "cta",
                     "cluster",
                     "gpu",
                     "sys",
                     "gl",
                     "proxy",
                     "alias",
                     "async",
                     "async::generic",
                     "global",
                     "shared::cta",
                     "shared::cluster",
                     "tensormap::generic",
                     "mbarrier_init",
                     "sync_restrict::shared::cta",
                     "sync_restrict::shared::cluster"}) >= 0) {
  }
  d.in.fn = !proxy ? memory_fence : async && !global ? proxy_fence : no_fence;
}

constexpr Entry kEntries[] = {
    {"bar", decode_bar, ".sync .arrive .red"},
    {"barrier", decode_bar, ".sync .arrive .red {.aligned}"},
    {"barrier.cluster", decode_cluster_barrier, ".arrive .wait {.aligned}"},
    {"membar", decode_fence, "checked in strict mode"},
    {"fence", decode_fence, "checked in strict mode"},
};

}  // namespace

void barriers_after_exit(Cta& cta) {
  for (NamedBarrier& b : cta.barriers)
    if (!b.expected && is_complete(cta, b)) complete(cta, b);
  complete_cluster(*cta.cluster);
}

Family barrier_family() { return {"barriers and fences", kEntries, std::size(kEntries)}; }

}  // namespace tcgen05::vsm

// What a cluster asks of the launch: clusterlaunchcontrol, griddepcontrol, setmaxnreg (PTX
// ISA 9.7.13, 9.7.19).
#include <iterator>

#include "vsm/checker.h"
#include "vsm/mbarrier.h"
#include "vsm/ops/address.h"
#include "vsm/ops/async_copy.h"
#include "vsm/ops/common.h"
#include "vsm/ops/families.h"

namespace tcgen05::vsm {
namespace {

using Kind = Operand::Kind;

// ---- clusterlaunchcontrol ----

constexpr uint32_t kAnswerBytes = 16;

// The answer that try_cancel leaves in shared memory; only query_cancel reads it.
struct Answer {
  uint32_t canceled = 0;
  uint32_t ctaid[3] = {};
};
static_assert(sizeof(Answer) == kAnswerBytes, "an answer is a .b128");

struct TryCancel {
  Place answer, barrier;
  bool all = false;
};

// Takes a cluster that has not begun from the launcher.
Answer cancel_cluster(Run& run) {
  uint64_t i = run.next_cluster.load();
  while (i < run.clusters.count() && !run.next_cluster.compare_exchange_weak(i, i + 1)) {
  }
  Answer a;
  if (i >= run.clusters.count()) return a;
  const Dim3 &n = run.clusters, &size = run.config.cluster;
  a.canceled = 1;
  a.ctaid[0] = static_cast<uint32_t>(i % n.x) * size.x;
  a.ctaid[1] = static_cast<uint32_t>(i / n.x % n.y) * size.y;
  a.ctaid[2] = static_cast<uint32_t>(i / (uint64_t{n.x} * n.y)) * size.z;
  return a;
}

Flow try_cancel(Warp& w, const Instr& in, Mask m) {
  const auto& f = *static_cast<const TryCancel*>(in.aux);
  Cluster& c = *w.cta->cluster;
  for_lanes(m, [&](int lane) {
    uint32_t to = shared_address_of(w, f.answer, "answer", lane),
             barrier = shared_address_of(w, f.barrier, "mbarrier", lane);
    std::vector<uint32_t> targets{to}, barriers{barrier};
    if (f.all) {  // the same offsets in every CTA (ptx_contract 16)
      targets.clear();
      barriers.clear();
      for (uint32_t rank = 0; rank < c.ctas.size(); ++rank) {
        targets.push_back((to & kSharedOffsetMask) | rank << kRankShift);
        barriers.push_back((barrier & kSharedOffsetMask) | rank << kRankShift);
      }
    }
    for (uint32_t t : targets) check_shared(w, t, kAnswerBytes, kAnswerBytes, "answer", lane);
    for (uint32_t b : barriers) load_mbarrier(c, b, lane);
    std::vector<uint32_t> numbers;
    if (w.checker)
      for (size_t i = 0; i < targets.size(); ++i)
        numbers.push_back(w.checker->copy_into(w, targets[i], kAnswerBytes, barriers[i], lane));
    start_async(
        w, in, lane, other_queue(c, w.cta->rank),
        [&c, targets = std::move(targets), barriers = std::move(barriers), numbers = std::move(numbers)] {
          Answer a = cancel_cluster(*c.run);
          for (uint32_t t : targets) std::memcpy(shared_bytes(c, t), &a, sizeof a);
          for (size_t i = 0; i < barriers.size(); ++i) {
            if (c.checker) c.checker->copied(barriers[i], numbers[i]);
            mbarrier_add_tx(c, barriers[i], -int64_t{kAnswerBytes}, -1);
          }
        });
  });
  return Flow::next;
}

void decode_try_cancel(Decoder& d) {
  auto f = std::make_shared<TryCancel>();
  d.need("async");
  Space space = take_space(d);
  d.need("mbarrier::complete_tx::bytes");
  f->all = d.take("multicast::cluster::all");
  d.type_of({Type::b128});
  d.need_operands(2);
  f->answer = take_place(d, d.operand(0), space);
  f->barrier = take_place(d, d.operand(1), space);
  d.own(f);
  d.in.fn = try_cancel;
}

Answer answer_of(const Warp& w, Ref r, int lane) {
  const auto* s = w.in<uint64_t>(r);
  Answer a;
  std::memcpy(static_cast<void*>(&a), &s[lane], 8);
  std::memcpy(reinterpret_cast<uint8_t*>(&a) + 8, &s[lane + 32], 8);
  return a;
}

Flow is_canceled(Warp& w, const Instr& in, Mask m) {
  Mask yes = 0;
  for_lanes(m, [&](int i) { yes |= Mask{answer_of(w, in.src[0], i).canceled != 0} << i; });
  w.set_predicate(in.dst, m, yes);
  return Flow::next;
}

// list: registers for x, y, z (and a fourth that stays 0); u[0]: the first of them.
Flow first_ctaid(Warp& w, const Instr& in, Mask m) {
  const Ref* refs = &w.program->refs[in.list];
  for_lanes(m, [&](int i) {
    Answer a = answer_of(w, in.src[0], i);
    for (uint32_t k = 0; k < in.list_size; ++k)
      w.out<uint32_t>(refs[k])[i] = k + in.u[0] < 3 ? a.ctaid[k + in.u[0]] : 0;
  });
  return Flow::next;
}

void decode_query_cancel(Decoder& d) {
  int what = d.need_any(
      {"is_canceled", "get_first_ctaid", "get_first_ctaid::x", "get_first_ctaid::y", "get_first_ctaid::z"});
  d.need_operands(2);
  d.in.src[0] = d.src(d.operand(1), Type::b128);
  if (what == 0) {
    d.need("pred");
    d.in.dst = d.pred_dst(d.operand(0));
    d.in.fn = is_canceled;
  } else {
    bool vector = d.take("v4");
    if (vector != (what == 1)) d.fail(".v4 belongs to .get_first_ctaid, and only to it");
    d.need("b32");
    d.in.u[0] = static_cast<uint8_t>(what > 1 ? what - 2 : 0);
    std::vector<Ref> refs = d.refs(d.operand(0), Type::b32, true);
    if (refs.size() != (vector ? 4u : 1u))
      d.fail("needs " + std::string(vector ? "four registers" : "one register"));
    d.set_list(refs);
    d.in.fn = first_ctaid;
  }
  d.need("b128");
}

// ---- without effect ----

Flow nothing(Warp&, const Instr&, Mask) { return Flow::next; }

// A launch is alone, so what it depends on is complete.
void decode_griddepcontrol(Decoder& d) {
  d.need_any({"launch_dependents", "wait"});
  d.need_operands(0);
  d.in.fn = nothing;
}

// Registers are not scarce here.
void decode_setmaxnreg(Decoder& d) {
  d.need_any({"inc", "dec"});
  d.need("sync");
  d.need("aligned");
  d.type_of({Type::u32});
  d.need_operands(1);
  uint64_t n = d.constant(d.operand(0), "the number of registers");
  if (n < 24 || n > 256 || n % 8)
    d.fail("number of registers is " + std::to_string(n) + ", allowed: multiples of 8 from 24 to 256");
  d.in.aligned = true;
  d.in.fn = nothing;
}

constexpr Entry kEntries[] = {
    {"clusterlaunchcontrol.try_cancel", decode_try_cancel, "{.multicast::cluster::all}"},
    {"clusterlaunchcontrol.query_cancel", decode_query_cancel, ".is_canceled .get_first_ctaid{::x ::y ::z}"},
    {"griddepcontrol", decode_griddepcontrol, "without effect"},
    {"setmaxnreg", decode_setmaxnreg, "without effect"},
};

}  // namespace

Family cluster_family() { return {"launch control", kEntries, std::size(kEntries)}; }

}  // namespace tcgen05::vsm

// tcgen05: allocation, mma, commit, fences (PTX ISA 9.7.16; ptx_contract 1, 7, 13). Moving data: tmem.cc.
#include <iterator>
#include <stdexcept>

#include "model/instruction.h"
#include "vsm/checker.h"
#include "vsm/mbarrier.h"
#include "vsm/ops/address.h"
#include "vsm/ops/async_copy.h"
#include "vsm/ops/common.h"
#include "vsm/ops/families.h"
#include "vsm/ops/tmem.h"
#include "vsm/trace.h"

namespace tcgen05::vsm {

int take_cta_group(Decoder& d) {
  int group = d.need_any({"cta_group::1", "cta_group::2"}) + 1;
  d.set_cta_group(group);
  return group;
}

void check_pair(Warp& w, int group, int lane) {
  if (group == 2 && w.cta->cluster->ctas.size() % 2)
    throw Fault{".cta_group::2 needs a cluster with an even number of CTAs, this one has " +
                    std::to_string(w.cta->cluster->ctas.size()),
                lane};
}

std::vector<Cta*> pair_of(Warp& w, int group) {
  if (group == 1) return {w.cta};
  Cluster& c = *w.cta->cluster;
  uint32_t even = w.cta->rank & ~1u;
  return {c.ctas[even].get(), c.ctas[even + 1].get()};
}

namespace {

using Kind = Operand::Kind;

// ---- allocation ----

constexpr uint32_t kUnit = 32;  // columns

bool is_free(const TmemAllocator& a, uint32_t unit, uint32_t units) {
  for (uint32_t i = unit; i < unit + units; ++i)
    if (a.owner[i]) return false;
  return true;
}

// Columns of the allocation that begins at `column`.
uint32_t count_columns(const TmemAllocator& a, uint32_t column) {
  uint32_t n = 0;
  for (uint16_t o : a.owner) n += o == a.owner[column / kUnit] ? kUnit : 0;
  return n;
}

// Lowest unit where `units` fit in all CTAs; 16 if none.
uint32_t find_units(const std::vector<Cta*>& ctas, uint32_t units) {
  for (uint32_t u = 0; u + units <= 16; ++u) {
    bool fits = true;
    for (Cta* c : ctas) fits = fits && is_free(c->allocator, u, units);
    if (fits) return u;
  }
  return 16;
}

// Serves requests that can be served: of one CTA, or of both CTAs of a pair at the same columns.
void serve(const std::vector<Cta*>& ctas) {
  uint32_t columns = ctas[0]->allocator.requested;
  for (Cta* c : ctas)
    if (!c->allocator.requested || c->allocator.requested != columns) return;
  uint32_t unit = find_units(ctas, columns / kUnit);
  if (unit == 16) return;
  for (Cta* c : ctas) {
    TmemAllocator& a = c->allocator;
    for (uint32_t i = unit; i < unit + columns / kUnit; ++i) a.owner[i] = a.next;
    if (!++a.next) a.next = 1;  // 0 means free
    a.requested = 0;
    a.granted = unit * kUnit + 1;
    ++c->cluster->progress;
  }
}

constexpr WaitKind kAllocationWait = {"tensor memory",
                                      [](Warp& w, uint64_t, uint64_t group) {
                                        serve(pair_of(w, static_cast<int>(group)));
                                        return w.cta->allocator.granted != 0;
                                      },
                                      false};

uint32_t checked_columns(uint32_t n, int lane) {
  if (n < 32 || n > 512 || (n & (n - 1)))
    throw Fault{"number of columns must be a power of two from 32 to 512, found " + std::to_string(n), lane};
  return n;
}

Flow alloc(Warp& w, const Instr& in, Mask m) {
  int lane = first_lane(m);
  Group& g = w.group();
  TmemAllocator& a = w.cta->allocator;
  check_pair(w, in.u[2], lane);
  if (g.stage == 0) {
    if (a.relinquished) throw Fault{"tcgen05.alloc after tcgen05.relinquish_alloc_permit in this CTA", lane};
    if (a.requested) throw Fault{"two warps of a CTA allocate tensor memory at once", lane};
    a.requested = checked_columns(w.in<uint32_t>(in.src[1])[lane], lane);
    serve(pair_of(w, in.u[2]));
    g.stage = 1;
  }
  if (!a.granted) return w.wait(kAllocationWait, 0, in.u[2]);
  g.stage = 0;
  uint32_t column = a.granted - 1;
  a.granted = 0;
  uint64_t addresses[32];
  lane_addresses(w, in.src[0], in.u[1], in.imm, m, addresses);
  uint8_t* p = w.at(static_cast<Space>(in.u[0]), addresses[lane], 4, 4, lane, true);
  std::memcpy(p, &column, 4);
  if (w.checker) {
    w.checker->touch(w, static_cast<Space>(in.u[0]), addresses[lane], 4, lane, Touch::store);
    w.checker->allocate(w, column, count_columns(a, column));
  }
  if (Trace* t = w.cta->cluster->trace.get())
    t->note({{"columns", w.in<uint32_t>(in.src[1])[lane]}, {"column", column}});
  ++w.cta->cluster->progress;
  return Flow::next;
}

void sync_aligned(Decoder& d) {
  d.need("sync");
  d.need("aligned");
  d.in.aligned = true;
}

void decode_alloc(Decoder& d) {
  d.in.u[2] = static_cast<uint8_t>(take_cta_group(d));
  sync_aligned(d);
  Space space = take_space(d);
  d.type_of({Type::b32});
  d.need_operands(2);
  if (d.is_constant(d.operand(1))) {
    uint64_t n = d.operand(1).value;
    if (n < 32 || n > 512 || (n & (n - 1))) d.fail("number of columns must be a power of two from 32 to 512");
  }
  bool wide = false;
  d.in.src[0] = d.address(d.operand(0), &d.in.imm, &wide);
  d.in.u[1] = wide;
  d.in.u[0] = static_cast<uint8_t>(space_of(d, d.operand(0), space));
  d.in.src[1] = d.src(d.operand(1), Type::u32);
  d.in.fn = alloc;
}

Flow dealloc(Warp& w, const Instr& in, Mask m) {
  int lane = first_lane(m);
  uint32_t column = w.in<uint32_t>(in.src[0])[lane],
           n = checked_columns(w.in<uint32_t>(in.src[1])[lane], lane);
  TmemAllocator& a = w.cta->allocator;
  check_pair(w, in.u[2], lane);
  bool known = column % kUnit == 0 && column <= 512 - n && a.owner[column / kUnit];
  if (known) {
    uint16_t owner = a.owner[column / kUnit];
    uint32_t units = 0;
    for (uint16_t o : a.owner) units += o == owner;
    known = units == n / kUnit && (column == 0 || a.owner[column / kUnit - 1] != owner);
  }
  if (!known)
    throw Fault{"tcgen05.dealloc of " + std::to_string(n) + " columns at " + hex(column) +
                    ", which is no allocation of this CTA",
                lane};
  if (w.checker) w.checker->deallocate(w, column, n, lane);
  for (uint32_t i = 0; i < n / kUnit; ++i) a.owner[column / kUnit + i] = 0;
  if (Trace* t = w.cta->cluster->trace.get()) t->note({{"columns", n}, {"column", column}});
  ++w.cta->cluster->progress;
  return Flow::next;
}

void decode_dealloc(Decoder& d) {
  d.in.u[2] = static_cast<uint8_t>(take_cta_group(d));
  sync_aligned(d);
  d.type_of({Type::b32});
  d.need_operands(2);
  d.in.src[0] = d.src(d.operand(0), Type::u32);
  d.in.src[1] = d.src(d.operand(1), Type::u32);
  d.in.fn = dealloc;
}

Flow relinquish(Warp& w, const Instr&, Mask) {
  w.cta->allocator.relinquished = true;
  return Flow::next;
}

void decode_relinquish(Decoder& d) {
  take_cta_group(d);
  sync_aligned(d);
  d.need_operands(0);
  d.in.fn = relinquish;
}

// ---- commit ----

// u[2]: cta_group; src[1]: multicast mask.
Flow commit(Warp& w, const Instr& in, Mask m) {
  uint64_t addresses[32];
  lane_addresses(w, in.src[0], in.u[1], in.imm, m, addresses);
  Cluster& c = *w.cta->cluster;
  for_lanes(m, [&](int lane) {
    check_pair(w, in.u[2], lane);
    uint64_t a = addresses[lane];
    if (static_cast<Space>(in.u[0]) == Space::generic) {
      if (a >> kWindowBits << kWindowBits != kSharedWindow)
        throw Fault{"mbarrier address " + hex(a) + " is not in shared memory", lane};
      a -= kSharedWindow;
    }
    uint32_t address = static_cast<uint32_t>(a);
    std::vector<uint32_t> targets;
    if (in.src[1] == kNoRef) {
      targets.push_back(address);
    } else {
      uint32_t mask = w.in<uint32_t>(in.src[1])[lane] & 0xffff;
      for (uint32_t rank = 0; rank < 16; ++rank)
        if (mask >> rank & 1) targets.push_back((address & kSharedOffsetMask) | rank << kRankShift);
    }
    Knowledge brings;
    if (w.checker) brings = w.checker->commit(w, lane);
    for (uint32_t t : targets) {
      load_mbarrier(c, t, lane);  // must be there now
      if (w.checker) w.checker->mbarrier(w, t, lane);
    }
    if (c.trace) c.trace->note({{"mbarrier", address & kSharedOffsetMask}, {"CTAs", targets.size()}});
    start_async(w, in, lane, tensor_queue(w.cta->rank), [&c, targets, brings = std::move(brings)] {
      for (uint32_t t : targets) {
        if (c.checker) c.checker->mbarrier_arrive(t, brings);
        mbarrier_arrive(c, t, 1, -1);
      }
    });
  });
  return Flow::next;
}

void decode_commit(Decoder& d) {
  d.in.u[2] = static_cast<uint8_t>(take_cta_group(d));
  d.need("mbarrier::arrive::one");
  Space space = take_space(d);
  bool multicast = d.take("multicast::cluster");
  d.type_of({Type::b64});
  d.need_operands(multicast ? 2 : 1);
  bool wide = false;
  d.in.src[0] = d.address(d.operand(0), &d.in.imm, &wide);
  d.in.u[1] = wide;
  d.in.u[0] = static_cast<uint8_t>(space_of(d, d.operand(0), space));
  if (multicast) d.in.src[1] = d.src(d.operand(1), Type::b16);
  d.in.fn = commit;
}

// ---- mma ----

struct MmaForm {
  Opcode opcode;
  bool a_in_tmem = false;
  int k = 0;
  Ref d, a, b, idesc, sfa = kNoRef, sfb = kNoRef, enable, zero_columns = kNoRef;
  uint32_t d_offset = 0, a_offset = 0, sfa_offset = 0, sfb_offset = 0;
  bool enable_negated = false;
  std::vector<Ref> mask;
};

model::CtaMemory memory_of(Cta& c) {
  return {c.shared.data(), static_cast<uint32_t>(c.shared.size()), c.tmem_data()};
}

// K steps are 32 bytes long, whatever the elements; with the 16-byte containers of fp6 and fp4, too.
void count_mma(Cluster& c, const model::Mma& x, uint64_t rows, uint64_t columns, uint64_t k) {
  constexpr uint64_t kStep = 32;
  c.macs += rows * columns * k;
  c.traffic.count(x.a_in_tmem ? Traffic::tensor : Traffic::shared, false, rows * kStep);
  c.traffic.count(Traffic::shared, false, columns * kStep);
  if (x.enable_input_d) c.traffic.count(Traffic::tensor, false, rows * columns * 4);
  c.traffic.count(Traffic::tensor, true, rows * columns * 4);
}

Flow mma(Warp& w, const Instr& in, Mask m) {
  const auto& f = *static_cast<const MmaForm*>(in.aux);
  for_lanes(m, [&](int lane) {
    check_pair(w, f.opcode.cta_group, lane);
    auto word = [&](Ref r) { return w.in<uint32_t>(r)[lane]; };
    model::Mma x;
    x.opcode = f.opcode;
    x.idesc = word(f.idesc);
    x.a_in_tmem = f.a_in_tmem;
    x.a = f.a_in_tmem ? word(f.a) + f.a_offset : w.in<uint64_t>(f.a)[lane];
    x.b = w.in<uint64_t>(f.b)[lane];
    x.d = word(f.d) + f.d_offset;
    if (f.sfa != kNoRef) x.sfa = word(f.sfa) + f.sfa_offset;
    if (f.sfb != kNoRef) x.sfb = word(f.sfb) + f.sfb_offset;
    x.enable_input_d = ((w.predicate(f.enable) ^ (f.enable_negated ? ~Mask{0} : 0)) >> lane) & 1;
    for (size_t i = 0; i < f.mask.size(); ++i) x.disable_output_lane[i] = word(f.mask[i]);
    if (f.zero_columns != kNoRef) x.zero_column_mask = w.in<uint64_t>(f.zero_columns)[lane];
    std::vector<Cta*> ctas = pair_of(w, f.opcode.cta_group);
    auto memories = std::make_shared<std::vector<model::CtaMemory>>();
    for (Cta* c : ctas) memories->push_back(memory_of(*c));
    try {
      model::check(x, memories->data());
    } catch (const std::invalid_argument& e) {
      throw Fault{e.what(), lane};
    }
    if (w.checker) w.checker->mma(w, lane, x, ctas, memories->data());
    bool scaled = x.opcode.block_scaled();
    uint64_t rows = scaled ? (x.idesc >> 27 & 3) * 128 : (x.idesc >> 24 & 31) * 16;
    count_mma(*w.cta->cluster, x, rows, (x.idesc >> 17 & 63) * 8, static_cast<uint64_t>(f.k));
    if (Trace* t = w.cta->cluster->trace.get())
      t->note({{"d", x.d}, {"a", x.a}, {"b", x.b}, {"idesc", x.idesc}, {"accumulate", x.enable_input_d}});
    w.cta->cluster->start(tensor_queue(w.cta->rank), [x, memories] { model::execute(x, memories->data()); });
  });
  return Flow::next;
}

Ref tmem_operand(Decoder& d, const Operand& x, uint32_t* offset) {
  uint64_t off = 0;
  bool wide = false;
  Ref r = d.address(x, &off, &wide);
  if (wide) d.fail("a tensor memory address is a 32-bit register");
  *offset = static_cast<uint32_t>(off);
  return r;
}

void decode_mma(Decoder& d) {
  std::string_view text = d.statement().opcode;
  while (!d.take_next().empty()) {
  }
  auto f = std::make_shared<MmaForm>();
  try {
    f->opcode = parse_opcode(text);
  } catch (const std::invalid_argument& e) {
    d.fail(e.what());
  }
  const Opcode& o = f->opcode;
  d.set_cta_group(o.cta_group);
  f->k = o.kind == tcgen05::Kind::f16                                         ? 16
         : o.kind == tcgen05::Kind::tf32                                      ? 8
         : o.kind == tcgen05::Kind::mxf4 || o.kind == tcgen05::Kind::mxf4nvf4 ? 64
                                                                              : 32;
  size_t at = 0;
  f->d = tmem_operand(d, d.operand(at++), &f->d_offset);
  const Operand& a = d.operand(at++);
  f->a_in_tmem = a.kind == Kind::address;
  f->a = f->a_in_tmem ? tmem_operand(d, a, &f->a_offset) : d.src(a, Type::b64);
  f->b = d.src(d.operand(at++), Type::b64);
  f->idesc = d.src(d.operand(at++), Type::b32);
  if (o.block_scaled()) {
    f->sfa = tmem_operand(d, d.operand(at++), &f->sfa_offset);
    f->sfb = tmem_operand(d, d.operand(at++), &f->sfb_offset);
  }
  if (d.operand(at).kind == Kind::vector) {
    if (o.ws || o.block_scaled())
      d.fail("a disable-output-lane mask is for dense mma without .ws and without block scale");
    f->mask = d.refs(d.operand(at++), Type::b32, false);
    if (f->mask.size() != 4 * static_cast<size_t>(o.cta_group))
      d.fail("the disable-output-lane mask has " + std::to_string(f->mask.size()) + " words, needs " +
             std::to_string(4 * o.cta_group));
  }
  f->enable = d.pred_src(d.operand(at++), &f->enable_negated);
  if (at < d.operands()) {
    if (o.ws) {
      f->zero_columns = d.src(d.operand(at++), Type::b64);
    } else {
      const Operand& scale = d.operand(at++);
      if (!d.is_constant(scale) || scale.value != 0) d.fail("scale-input-d is not executed here");
    }
  }
  d.need_operands(at);
  d.own(f);
  d.in.fn = mma;
}

Flow fence_before(Warp& w, const Instr&, Mask) {
  if (w.checker) w.checker->before_thread_sync(w);
  return Flow::next;
}

Flow fence_after(Warp& w, const Instr&, Mask) {
  if (w.checker) w.checker->after_thread_sync(w);
  return Flow::next;
}

template <Handler kHandler>
void decode_fence(Decoder& d) {
  d.need_operands(0);
  d.in.fn = kHandler;
}

constexpr Entry kEntries[] = {
    {"tcgen05.alloc", decode_alloc, ".cta_group::1 ::2"},
    {"tcgen05.dealloc", decode_dealloc, ".cta_group::1 ::2"},
    {"tcgen05.relinquish_alloc_permit", decode_relinquish, ".cta_group::1 ::2"},
    {"tcgen05.commit", decode_commit, "{.multicast::cluster}"},
    {"tcgen05.fence::before_thread_sync", decode_fence<fence_before>, ""},
    {"tcgen05.fence::after_thread_sync", decode_fence<fence_after>, ""},
    {"tcgen05.mma", decode_mma, "dense, .ws, .block_scale; all kinds"},
    {"tcgen05.mma.sp", refused, "sparse operands"},
    {"tcgen05.mma.ws.sp", refused, "sparse operands"},
    {"tcgen05.shift", refused, "direction and extent are open (OQ14)"},
};

}  // namespace

Family tcgen05_family() { return {"tcgen05", kEntries, std::size(kEntries)}; }

}  // namespace tcgen05::vsm

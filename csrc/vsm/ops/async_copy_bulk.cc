// Bulk copies without a tensor map (PTX ISA 9.7.9.25.4): cp.async.bulk, cp.reduce.async.bulk, and their
// groups.
#include <iterator>

#include "vsm/checker.h"
#include "vsm/mbarrier.h"
#include "vsm/ops/address.h"
#include "vsm/ops/async_copy.h"
#include "vsm/ops/common.h"
#include "vsm/ops/families.h"
#include "vsm/ops/reduction.h"

namespace tcgen05::vsm {
namespace {

constexpr uint32_t kGrain = 16;  // bytes; of sizes and addresses

struct BulkCopy {
  Place to, from, barrier;
  bool to_global = false, from_global = false;
  bool multicast = false, masked = false, reduces = false;
  Ref size = kNoRef;
  Ref mask = kNoRef;  // of CTAs, or of bytes in each 16
  Reduction op = Reduction::add;
  Type type = Type::b8;
};

void combine(const BulkCopy& f, uint8_t* to, const uint8_t* from, uint32_t bytes, uint32_t byte_mask) {
  if (f.reduces) {
    std::lock_guard<std::mutex> lock(atomics());
    reduce_cells(f.op, f.type, to, from, bytes);
  } else if (byte_mask != 0xffff) {
    for (uint32_t at = 0; at < bytes; ++at)
      if (byte_mask >> at % kGrain & 1) to[at] = from[at];
  } else if (bytes) {
    std::memmove(to, from, bytes);
  }
}

uint32_t size_of(const Warp& w, const BulkCopy& f, int lane) {
  uint32_t bytes = w.in<uint32_t>(f.size)[lane];
  if (bytes % kGrain)
    throw Fault{"size of a bulk copy is " + std::to_string(bytes) + " bytes, allowed: multiples of 16", lane};
  return bytes;
}

uint8_t* global_operand(Warp& w, const Place& p, uint32_t bytes, bool write, int lane) {
  uint64_t a = address_of(w, p, lane);
  if (a % kGrain)
    throw Fault{"global address " + hex(a) + " of a bulk copy is not aligned to 16 bytes", lane};
  return bytes ? w.global_at(a, bytes, lane, write) : nullptr;
}

// Into shared memory; the mbarrier is credited with the bytes.
void copy_in(Warp& w, const Instr& in, const BulkCopy& f, int lane) {
  Cluster& c = *w.cta->cluster;
  uint32_t bytes = size_of(w, f, lane);
  uint32_t to = shared_address_of(w, f.to, "destination", lane);
  uint32_t barrier = shared_address_of(w, f.barrier, "mbarrier", lane);
  std::vector<uint32_t> targets{to}, barriers{barrier};
  if (f.multicast) {
    std::vector<uint32_t> ranks = ranks_of(w, w.in<uint32_t>(f.mask)[lane] & 0xffff, lane);
    targets.clear();
    for (uint32_t rank : ranks) targets.push_back((to & kSharedOffsetMask) | rank << kRankShift);
    barriers = multicast_barriers(barrier, ranks, 1);
  }
  for (uint32_t t : targets) check_shared(w, t, bytes, kGrain, "destination", lane);
  for (uint32_t b : barriers) load_mbarrier(c, b, lane);
  const uint8_t* from;
  if (f.from_global) {
    from = global_operand(w, f.from, bytes, false, lane);
  } else {
    uint32_t a = shared_address_of(w, f.from, "source", lane);
    check_shared(w, a, bytes, kGrain, "source", lane);
    from = shared_bytes(c, a);
  }
  note_copy(c, f.from_global ? Traffic::global : Traffic::shared, Traffic::shared, bytes, targets.size(), to,
            barrier);
  CopyKind kind = f.reduces ? CopyKind::reduction : CopyKind::copy;
  std::vector<uint32_t> numbers;
  if (w.checker) {
    for (size_t i = 0; i < targets.size(); ++i)
      numbers.push_back(w.checker->copy_into(w, targets[i], bytes, barriers[i], lane, kind));
    if (!f.from_global)
      w.checker->copy_from(w, shared_address_of(w, f.from, "source", lane), bytes, barriers[0], lane);
  }
  start_copy(w, in, lane,
             [&c, &f, from, bytes, kind, targets = std::move(targets), barriers = std::move(barriers),
              numbers = std::move(numbers)] {
               for (size_t i = 0; i < targets.size(); ++i) {
                 combine(f, shared_bytes(c, targets[i]), from, bytes, 0xffff);
                 if (c.checker) c.checker->copied(barriers[i], numbers[i], kind);
                 mbarrier_add_tx(c, barriers[i], -int64_t{bytes}, -1);
               }
             });
}

// Out to global memory; counted in bulk groups. The source is read first, the stores land later.
void copy_out(Warp& w, const Instr& in, const BulkCopy& f, int lane) {
  Cluster& c = *w.cta->cluster;
  uint32_t bytes = size_of(w, f, lane);
  uint32_t from = shared_address_of(w, f.from, "source", lane);
  check_shared(w, from, bytes, kGrain, "source", lane);
  uint8_t* to = global_operand(w, f.to, bytes, true, lane);
  uint32_t mask = f.masked ? w.in<uint32_t>(f.mask)[lane] & 0xffff : 0xffff;
  note_copy(c, Traffic::shared, Traffic::global, bytes, 1, from, 0);
  CopyGroups& group = copies_of(w).bulk[static_cast<size_t>(lane)];
  ++group.issued;
  if (w.checker) w.checker->group_read(w, from, bytes, lane);
  auto data = std::make_shared<std::vector<uint8_t>>();
  start_copy(w, in, lane, [&c, &group, data, from, bytes] {
    const uint8_t* p = shared_bytes(c, from);
    data->assign(p, p + bytes);
    ++group.read;
  });
  start_copy(w, in, lane, [&f, &group, data, to, mask] {
    combine(f, to, data->data(), static_cast<uint32_t>(data->size()), mask);
    ++group.done;
  });
}

Flow bulk_copy(Warp& w, const Instr& in, Mask m) {
  const auto& f = *static_cast<const BulkCopy*>(in.aux);
  for_lanes(m, [&](int lane) { f.to_global ? copy_out(w, in, f, lane) : copy_in(w, in, f, lane); });
  return Flow::next;
}

void take_operation(Decoder& d, BulkCopy& f) {
  f.reduces = true;
  f.op = take_reduction(d);
  d.take("noftz");
  f.type = d.type();
  bool real = f.type == Type::f16 || f.type == Type::bf16;
  bool real_add = f.op == Reduction::add && (f.type == Type::f32 || f.type == Type::f64);
  if (!reduction_allowed(f.op, f.type) || !(real || real_add || is_integer(f.type) || is_bits(f.type)))
    d.fail("type ." + std::string(name_of(f.type)) + " is not allowed with this operation");
  if (!f.to_global && (real || real_add || f.type == Type::b64 || (f.type == Type::s64) ||
                       (f.type == Type::u64 && f.op != Reduction::add)))
    d.fail("type ." + std::string(name_of(f.type)) + " is not allowed with this operation on shared memory");
}

void decode_bulk(Decoder& d, bool reduces) {
  auto f = std::make_shared<BulkCopy>();
  bool barrier = d.take("mbarrier::complete_tx::bytes"), group = d.take("bulk_group");
  if (barrier == group) d.fail("needs one of the modifiers .mbarrier::complete_tx::bytes, .bulk_group");
  f->multicast = d.take("multicast::cluster");
  f->masked = d.take("cp_mask");
  bool policy = take_cache_modifiers(d);
  std::string to(d.take_next()), from(d.take_next());
  f->to_global = to == "global";
  f->from_global = from == "global";
  bool to_shared = to == "shared::cluster" || (to == "shared::cta" && f->from_global),
       from_cta = from == "shared::cta";
  if (!((f->to_global && from_cta && group) || (to_shared && f->from_global && barrier && !reduces) ||
        (to == "shared::cluster" && from_cta && barrier)))
    d.fail("does not copy from ." + from + " to ." + to +
           (group ? " with .bulk_group" : " with .mbarrier::complete_tx::bytes"));
  if (f->multicast && !(to == "shared::cluster" && f->from_global))
    d.fail(".multicast::cluster is for copies from .global to .shared::cluster");
  if (f->masked && (!f->to_global || reduces)) d.fail(".cp_mask is for copies to .global");
  if (reduces) take_operation(d, *f);
  size_t n = 3 + barrier + f->multicast + policy + f->masked;
  d.need_operands(n);
  f->to = take_place(d, d.operand(0),
                     f->to_global              ? Space::global
                     : to == "shared::cluster" ? Space::shared_cluster
                                               : Space::shared);
  f->from = take_place(d, d.operand(1), f->from_global ? Space::global : Space::shared);
  f->size = d.src(d.operand(2), Type::u32);
  size_t at = 3;
  if (barrier)
    f->barrier =
        take_place(d, d.operand(at++), to == "shared::cluster" ? Space::shared_cluster : Space::shared);
  if (f->multicast) f->mask = d.src(d.operand(at++), Type::b16);
  if (policy) d.src(d.operand(at++), Type::b64);
  if (f->masked) f->mask = d.src(d.operand(at++), Type::b16);
  d.own(f);
  d.in.fn = bulk_copy;
}

Flow nothing(Warp&, const Instr&, Mask) { return Flow::next; }

void decode_prefetch(Decoder& d) {
  d.need("L2");
  bool policy = take_cache_modifiers(d);
  d.need("global");
  d.need_operands(policy ? 3 : 2);
  take_place(d, d.operand(0), Space::global);
  d.src(d.operand(1), Type::u32);
  d.in.fn = nothing;
}

constexpr Entry kEntries[] = {
    {"cp.async.bulk", [](Decoder& d) { decode_bulk(d, false); },
     "global, shared::cta and shared::cluster; {.multicast::cluster} {.cp_mask}"},
    {"cp.reduce.async.bulk", [](Decoder& d) { decode_bulk(d, true); },
     ".and .or .xor .add .inc .dec .min .max"},
    {"cp.async.bulk.prefetch", decode_prefetch, "without effect"},
    {"cp.async.bulk.commit_group", [](Decoder& d) { decode_commit_group(d, true); }, ""},
    {"cp.async.bulk.wait_group", [](Decoder& d) { decode_wait_group(d, true); }, "{.read}"},
    {"multimem.cp.async.bulk", refused, "there is one device, and no multicast address names several"},
    {"multimem.cp.reduce.async.bulk", refused, "there is one device, and no multicast address names several"},
};

}  // namespace

Family bulk_copy_family() { return {"bulk copies", kEntries, std::size(kEntries)}; }

}  // namespace tcgen05::vsm

// Stores and reductions that complete at an mbarrier (PTX ISA 9.7.9.12, 9.7.13.8): st.async, red.async; and
// st.bulk.
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

struct AsyncStore {
  Place to, barrier;
  bool has_barrier = false, reduces = false, wide = false;
  Reduction op = Reduction::add;
  Type type = Type::b32;
  std::vector<Ref> values;
};

Flow async_store(Warp& w, const Instr& in, Mask m) {
  const auto& f = *static_cast<const AsyncStore*>(in.aux);
  Cluster& c = *w.cta->cluster;
  uint32_t each = static_cast<uint32_t>(bytes_of(f.type)),
           bytes = each * static_cast<uint32_t>(f.values.size());
  for_lanes(m, [&](int lane) {
    uint8_t* to = w.at(f.to.space, address_of(w, f.to, lane), bytes, bytes, lane, true);
    uint32_t barrier = f.has_barrier ? shared_address_of(w, f.barrier, "mbarrier", lane) : 0;
    if (f.has_barrier) load_mbarrier(c, barrier, lane);
    std::array<uint64_t, 4> values{};
    for (size_t k = 0; k < f.values.size(); ++k) values[k] = w.read(f.values[k], f.wide, lane);
    CopyKind kind = f.reduces ? CopyKind::reduction : CopyKind::store;
    uint32_t number = 0;
    if (w.checker && f.has_barrier)
      number = w.checker->copy_into(w, static_cast<uint32_t>(address_of(w, f.to, lane)), bytes, barrier, lane,
                                    kind);
    start_copy(w, in, lane, [&c, &f, to, barrier, values, each, bytes, kind, number] {
      std::lock_guard<std::mutex> lock(atomics());
      for (size_t k = 0; k < f.values.size(); ++k) {
        const auto* value = reinterpret_cast<const uint8_t*>(&values[k]);
        if (f.reduces) {
          reduce_cells(f.op, f.type, to + k * each, value, each);
        } else {
          std::memcpy(to + k * each, value, each);
        }
      }
      if (f.has_barrier && c.checker) c.checker->copied(barrier, number, kind);
      if (f.has_barrier) mbarrier_add_tx(c, barrier, -int64_t{bytes}, -1);
    });
  });
  return Flow::next;
}

void decode_async(Decoder& d, bool reduces) {
  auto f = std::make_shared<AsyncStore>();
  f->reduces = reduces;
  take_order_modifiers(d);
  f->has_barrier = d.take("mbarrier::complete_tx::bytes");
  Space space = take_space(d);
  if (f->has_barrier ? space != Space::generic && space != Space::shared_cluster
                     : space != Space::generic && space != Space::global)
    d.fail(f->has_barrier ? "the destination is .shared::cluster"
                          : "without an mbarrier the destination is .global");
  if (reduces) f->op = take_reduction(d);
  int v = reduces ? -1 : d.take_any({"v2", "v4"});
  f->type = d.type();
  size_t n = v < 0 ? 1 : size_t{2} << v;
  int bits = bits_of(f->type);
  if (bits > 64 || bits < (f->has_barrier ? 32 : 8) || bits * static_cast<int>(n) > 128)
    d.fail("type ." + std::string(name_of(f->type)) + " is not allowed");
  if (reduces) {
    Type t = f->type;
    bool bitwise = f->op == Reduction::and_ || f->op == Reduction::or_ || f->op == Reduction::xor_;
    if (!reduction_allowed(f->op, t) || (f->has_barrier && !bitwise && !is_integer(t)) ||
        (!f->has_barrier && f->op != Reduction::add))
      d.fail("type ." + std::string(name_of(t)) + " is not allowed with this operation");
  }
  f->wide = bits == 64;
  d.need_operands(f->has_barrier ? 3 : 2);
  f->to = take_place(d, d.operand(0),
                     f->has_barrier            ? Space::shared_cluster
                     : space == Space::generic ? space
                                               : Space::global);
  Type read = is_real(f->type) && bits >= 32 ? f->type
              : bits == 64                   ? Type::b64
              : bits == 32                   ? Type::b32
                                             : f->type;
  f->values = d.refs(d.operand(1), read, false);
  if (f->values.size() != n) d.fail("needs " + std::to_string(n) + " values");
  if (f->has_barrier) f->barrier = take_place(d, d.operand(2), Space::shared_cluster);
  d.own(f);
  d.in.fn = async_store;
}

struct BulkStore {
  Place to;
  Ref size = kNoRef;
  bool wide = false;
};

Flow bulk_store(Warp& w, const Instr& in, Mask m) {
  const auto& f = *static_cast<const BulkStore*>(in.aux);
  for_lanes(m, [&](int lane) {
    uint64_t bytes = w.read(f.size, f.wide, lane);
    if (bytes % 8 || bytes > kMaxShared)
      throw Fault{
          "size of st.bulk is " + std::to_string(bytes) + ", allowed: multiples of 8 in shared memory", lane};
    if (!bytes) return;
    uint32_t n = static_cast<uint32_t>(bytes);
    std::memset(w.at(f.to.space, address_of(w, f.to, lane), n, 8, lane, true), 0, n);
    if (w.checker) w.checker->touch(w, f.to.space, address_of(w, f.to, lane), n, lane, Touch::store);
  });
  ++w.cta->cluster->progress;
  return Flow::next;
}

void decode_bulk_store(Decoder& d) {
  auto f = std::make_shared<BulkStore>();
  d.take("weak");
  Space space = take_space(d);
  if (space != Space::generic && space != Space::shared) d.fail("st.bulk is for .shared::cta");
  d.need_operands(3);
  f->to = take_place(d, d.operand(0), space);
  f->wide = d.is_constant(d.operand(1)) || d.wide(d.operand(1));
  f->size = d.src(d.operand(1), f->wide ? Type::b64 : Type::b32);
  if (d.constant(d.operand(2), "the initial value") != 0) d.fail("the initial value must be 0");
  d.own(f);
  d.in.fn = bulk_store;
}

constexpr std::string_view kNoMultimem = "there is one device, and no multicast address names several";

constexpr Entry kEntries[] = {
    {"st.async", [](Decoder& d) { decode_async(d, false); },
     "to .shared::cluster with an mbarrier, to .global without; .v2 .v4"},
    {"red.async", [](Decoder& d) { decode_async(d, true); }, ".and .or .xor .add .inc .dec .min .max"},
    {"st.bulk", decode_bulk_store, "zeros"},
    {"multimem.ld_reduce", refused, kNoMultimem},
    {"multimem.st", refused, kNoMultimem},
    {"multimem.red", refused, kNoMultimem},
};

}  // namespace

Family async_store_family() { return {"asynchronous stores", kEntries, std::size(kEntries)}; }

}  // namespace tcgen05::vsm

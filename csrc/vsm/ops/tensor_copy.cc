// Tensor copies (PTX ISA 9.7.9.27): cp.async.bulk.tensor, cp.reduce.async.bulk.tensor, and their prefetch.
#include <iterator>
#include <stdexcept>

#include "vsm/checker.h"
#include "vsm/mbarrier.h"
#include "vsm/ops/address.h"
#include "vsm/ops/async_copy.h"
#include "vsm/ops/common.h"
#include "vsm/ops/families.h"
#include "vsm/ops/reduction.h"
#include "vsm/ops/tensor_copy_box.h"

namespace tcgen05::vsm {
namespace {

using Kind = Operand::Kind;

constexpr uint32_t kSharedAlign = 128;  // of a box in shared memory (PTX ISA 9.7.9.27.1.2)

struct TensorCopy {
  Place map, shared, barrier;
  BoxMode mode = BoxMode::tile;
  int rank = 1;
  bool store = false, multicast = false, reduces = false;
  int cta_group = 0;
  std::vector<Ref> coordinates, info;
  Ref mask = kNoRef;
  Reduction op = Reduction::add;
};

Box box_of(Warp& w, const TensorCopy& f, int lane) {
  TensorMap m;
  std::memcpy(static_cast<void*>(&m),
              w.at(f.map.space, address_of(w, f.map, lane), sizeof m, 64, lane, false), sizeof m);
  BoxRequest r;
  r.mode = f.mode;
  r.store = f.store;
  for (size_t i = 0; i < f.coordinates.size(); ++i)
    r.coordinate[i] = static_cast<int32_t>(w.in<uint32_t>(f.coordinates[i])[lane]);
  for (size_t i = 0; i < f.info.size(); ++i) r.info[i] = w.in<uint32_t>(f.info[i])[lane] & 0xffff;
  try {
    Box b = resolve_box(m, r);
    if (m.rank != f.rank)
      throw std::invalid_argument("the instruction is for rank " + std::to_string(f.rank) +
                                  ", the tensor map has rank " + std::to_string(m.rank));
    return b;
  } catch (const std::invalid_argument& e) {
    throw Fault{e.what(), lane};
  }
}

// The bytes of row i that exist in global memory, or null.
uint8_t* row_in_memory(Warp& w, const Box& b, const BoxRow& r, bool write, int lane) {
  if (!r.inside || b.end <= b.first) return nullptr;
  return w.global_at(b.address(r) + b.first, b.end - b.first, lane, write);
}

void load_box(Warp& w, const Box& b, const std::vector<uint32_t>& targets, int lane) {
  std::vector<uint8_t> row(b.row_bytes);
  for (size_t i = 0; i < b.rows.size(); ++i) {
    if (const uint8_t* p = row_in_memory(w, b, b.rows[i], false, lane)) {
      fill_outside(b.map, row.data(), b.first);
      std::memcpy(row.data() + b.first, p, b.end - b.first);
      convert_loaded(b.map, row.data() + b.first, b.end - b.first);
      fill_outside(b.map, row.data() + b.end, b.row_bytes - b.end);
    } else {
      fill_outside(b.map, row.data(), b.row_bytes);
    }
    for (uint32_t t : targets)
      scatter_row(b, i, row.data(), shared_bytes(*w.cta->cluster, t & ~kSharedOffsetMask),
                  t & kSharedOffsetMask);
  }
}

void load(Warp& w, const Instr& in, const TensorCopy& f, int lane) {
  Cluster& c = *w.cta->cluster;
  auto box = std::make_shared<Box>(box_of(w, f, lane));
  uint32_t to = shared_address_of(w, f.shared, "destination", lane),
           barrier = shared_address_of(w, f.barrier, "mbarrier", lane);
  std::vector<uint32_t> targets{to}, barriers{barrier};
  if (f.multicast) {
    std::vector<uint32_t> ranks = ranks_of(w, w.in<uint32_t>(f.mask)[lane] & 0xffff, lane);
    targets.clear();
    for (uint32_t rank : ranks) targets.push_back((to & kSharedOffsetMask) | rank << kRankShift);
    barriers = multicast_barriers(barrier, ranks, f.cta_group);
  } else if ((to ^ barrier) >> kRankShift >> (f.cta_group == 2)) {
    throw Fault{"mbarrier " + hex(barrier) + " and destination " + hex(to) + " are in different " +
                    (f.cta_group == 2 ? "pairs of CTAs" : "CTAs"),
                lane};
  }
  for (uint32_t t : targets) check_shared(w, t, box->shared_bytes(), kSharedAlign, "destination", lane);
  for (uint32_t b : barriers) load_mbarrier(c, b, lane);
  note_copy(c, Traffic::global, Traffic::shared, box->bytes(), targets.size(), to, barrier);
  std::vector<uint32_t> numbers;
  if (w.checker)
    for (size_t i = 0; i < targets.size(); ++i)
      numbers.push_back(w.checker->copy_into(w, targets[i], box->shared_bytes(), barriers[i], lane));
  start_copy(w, in, lane,
             [&w, &c, box, targets = std::move(targets), barriers = std::move(barriers),
              numbers = std::move(numbers), lane] {
               load_box(w, *box, targets, lane);
               for (size_t i = 0; i < barriers.size(); ++i) {
                 if (c.checker) c.checker->copied(barriers[i], numbers[i]);
                 mbarrier_add_tx(c, barriers[i], -int64_t{box->bytes()}, -1);
               }
             });
}

// The type that a reduction computes with.
Type reduction_type(const TensorCopy& f, const TensorMap& m, int lane) {
  const ElementRow& e = row_of(m.element);
  bool bitwise = f.op == Reduction::and_ || f.op == Reduction::or_ || f.op == Reduction::xor_;
  Type t = bitwise && is_integer(e.type) ? (e.bits == 64 ? Type::b64 : Type::b32) : e.type;
  if (t == Type::none || !reduction_allowed(f.op, t))
    throw Fault{"this reduction is not defined for elements of type " + std::string(e.name), lane};
  return t;
}

void store(Warp& w, const Instr& in, const TensorCopy& f, int lane) {
  Cluster& c = *w.cta->cluster;
  auto box = std::make_shared<Box>(box_of(w, f, lane));
  Type type = f.reduces ? reduction_type(f, box->map, lane) : Type::none;
  uint32_t from = shared_address_of(w, f.shared, "source", lane);
  check_shared(w, from, box->shared_bytes(), kSharedAlign, "source", lane);
  note_copy(c, Traffic::shared, Traffic::global, box->bytes(), 1, from, 0);
  CopyGroups& group = copies_of(w).bulk[static_cast<size_t>(lane)];
  ++group.issued;
  if (w.checker) w.checker->group_read(w, from, box->shared_bytes(), lane);
  auto data = std::make_shared<std::vector<uint8_t>>();
  start_copy(w, in, lane, [&c, &group, box, data, from] {
    data->resize(box->bytes());
    const uint8_t* shared = shared_bytes(c, from & ~kSharedOffsetMask);
    for (size_t i = 0; i < box->rows.size(); ++i)
      gather_row(*box, i, data->data() + i * box->row_bytes, shared, from & kSharedOffsetMask);
    ++group.read;
  });
  start_copy(w, in, lane, [&w, &f, &group, box, data, type, lane] {
    const Box& b = *box;
    std::unique_lock<std::mutex> lock(atomics(), std::defer_lock);
    if (f.reduces) lock.lock();
    for (size_t i = 0; i < b.rows.size(); ++i) {
      uint8_t* p = row_in_memory(w, b, b.rows[i], true, lane);
      if (!p) continue;
      const uint8_t* row = data->data() + i * b.row_bytes + b.first;
      if (f.reduces) {
        reduce_cells(f.op, type, p, row, b.end - b.first);
      } else {
        std::memcpy(p, row, b.end - b.first);
      }
    }
    ++group.done;
  });
}

Flow tensor_copy(Warp& w, const Instr& in, Mask m) {
  const auto& f = *static_cast<const TensorCopy*>(in.aux);
  for_lanes(m, [&](int lane) { f.store ? store(w, in, f, lane) : load(w, in, f, lane); });
  return Flow::next;
}

Flow nothing(Warp&, const Instr&, Mask) { return Flow::next; }

// ---- decoding ----

void take_mode(Decoder& d, TensorCopy& f, bool prefetch) {
  int mode = d.take_any(
      {"tile", "tile::gather4", "tile::scatter4", "im2col", "im2col_no_offs", "im2col::w", "im2col::w::128"});
  static constexpr BoxMode kModes[] = {BoxMode::tile,       BoxMode::gather4, BoxMode::gather4,
                                       BoxMode::im2col,     BoxMode::im2col,  BoxMode::im2col_w,
                                       BoxMode::im2col_w128};
  if (mode >= 0) f.mode = kModes[mode];
  bool only_load = mode == 1 || mode == 3 || mode >= 5, only_store = mode == 2 || mode == 4;
  if (only_load && f.store && !prefetch) d.fail("this mode is for loads");
  if (only_store && !f.store) d.fail("this mode is for stores");
  if (f.reduces && mode == 2) d.fail("reductions have no .tile::scatter4");
  if (f.mode == BoxMode::gather4 && f.rank != 2) d.fail("gather4 and scatter4 are for .2d");
  if (f.mode >= BoxMode::im2col && f.rank < 3) d.fail("im2col is for .3d, .4d and .5d");
}

// [map, {coordinates}]
void take_tensor(Decoder& d, TensorCopy& f, const Operand& x) {
  if (x.kind != Kind::address || x.list.size() != 2) d.fail("expected [tensor map, {coordinates}]");
  Operand map = x;
  map.list.resize(1);
  f.map = take_place(d, map, Space::generic);
  f.coordinates = d.refs(x.list[1], Type::s32, false);
  size_t want = f.mode == BoxMode::gather4 ? 5 : static_cast<size_t>(f.rank);
  if (f.coordinates.size() != want)
    d.fail("has " + std::to_string(f.coordinates.size()) + " coordinates, needs " + std::to_string(want));
}

void take_info(Decoder& d, TensorCopy& f, const Operand& x) {
  f.info = d.refs(x, Type::b16, false);
  size_t want = f.mode == BoxMode::im2col ? static_cast<size_t>(f.rank) - 2 : 2;
  if (f.info.size() != want)
    d.fail("has " + std::to_string(f.info.size()) + " im2col values, needs " + std::to_string(want));
}

int take_rank(Decoder& d) { return d.need_any({"1d", "2d", "3d", "4d", "5d"}) + 1; }

void decode_load(Decoder& d, std::shared_ptr<TensorCopy> f, const std::string& to) {
  d.need("mbarrier::complete_tx::bytes");
  f->multicast = d.take("multicast::cluster");
  f->cta_group = d.take_any({"cta_group::1", "cta_group::2"}) + 1;
  bool policy = take_cache_modifiers(d);
  take_mode(d, *f, false);
  if (f->multicast && to != "shared::cluster")
    d.fail(".multicast::cluster needs the destination .shared::cluster");
  bool info = f->mode >= BoxMode::im2col;
  d.need_operands(size_t{3} + info + f->multicast + policy);
  Space space = to == "shared::cluster" ? Space::shared_cluster : Space::shared;
  f->shared = take_place(d, d.operand(0), space);
  take_tensor(d, *f, d.operand(1));
  f->barrier = take_place(d, d.operand(2), Space::shared_cluster);
  size_t at = 3;
  if (info) take_info(d, *f, d.operand(at++));
  if (f->multicast) f->mask = d.src(d.operand(at++), Type::b16);
  if (policy) d.src(d.operand(at++), Type::b64);
}

void decode_store(Decoder& d, std::shared_ptr<TensorCopy> f) {
  d.need("bulk_group");
  if (f->reduces) f->op = take_reduction(d);
  bool policy = take_cache_modifiers(d);
  take_mode(d, *f, false);
  d.need_operands(policy ? 3 : 2);
  take_tensor(d, *f, d.operand(0));
  f->shared = take_place(d, d.operand(1), Space::shared);
  if (policy) d.src(d.operand(2), Type::b64);
}

void decode_tensor(Decoder& d, bool reduces) {
  auto f = std::make_shared<TensorCopy>();
  f->rank = take_rank(d);
  f->reduces = reduces;
  // The two spaces are told apart by their order; everything else is named.
  std::string text(d.statement().opcode);
  f->store = text.find(".global.shared::cta") != std::string::npos;
  std::string to;
  if (f->store) {
    d.need("global");
    d.need("shared::cta");
    decode_store(d, f);
  } else {
    if (reduces) d.fail("reductions are from .shared::cta to .global");
    to = d.need_any({"shared::cluster", "shared::cta"}) == 0 ? "shared::cluster" : "shared::cta";
    d.need("global");
    decode_load(d, f, to);
  }
  d.own(f);
  d.in.fn = tensor_copy;
}

void decode_prefetch(Decoder& d) {
  TensorCopy f;
  f.rank = take_rank(d);
  d.need("L2");
  bool policy = take_cache_modifiers(d);
  d.need("global");
  take_mode(d, f, true);
  bool info = f.mode >= BoxMode::im2col;
  d.need_operands(size_t{1} + info + policy);
  take_tensor(d, f, d.operand(0));
  if (info) take_info(d, f, d.operand(1));
  d.in.fn = nothing;
}

constexpr std::string_view kForms =
    ".1d to .5d; .tile, .tile::gather4, .tile::scatter4, .im2col, .im2col_no_offs, .im2col::w, "
    ".im2col::w::128; .multicast::cluster, .cta_group";

constexpr Entry kEntries[] = {
    {"cp.async.bulk.tensor", [](Decoder& d) { decode_tensor(d, false); }, kForms},
    {"cp.reduce.async.bulk.tensor", [](Decoder& d) { decode_tensor(d, true); },
     ".and .or .xor .add .inc .dec .min .max; .tile, .im2col_no_offs"},
    {"cp.async.bulk.prefetch.tensor", decode_prefetch, "without effect"},
};

}  // namespace

Family tensor_copy_family() { return {"tensor copies", kEntries, std::size(kEntries)}; }

}  // namespace tcgen05::vsm

// Tensor maps edited by kernels (PTX ISA 9.7.9.28, 9.7.13.15): tensormap.replace, tensormap.cp_fenceproxy.
#include <algorithm>
#include <iterator>

#include "vsm/checker.h"
#include "vsm/ops/address.h"
#include "vsm/ops/async_copy.h"
#include "vsm/ops/common.h"
#include "vsm/ops/families.h"
#include "vsm/tensormap.h"

namespace tcgen05::vsm {
namespace {

enum Field {
  kAddress,
  kRank,
  kBox,
  kDim,
  kStride,
  kElementStride,
  kElement,
  kInterleave,
  kSwizzle,
  kAtom,
  kFill
};

struct Replace {
  Place map;
  int field = 0;
  uint32_t ordinal = 0;
  Ref value = kNoRef;
  bool wide = false;
};

// The largest value of each field.
constexpr uint64_t kMost[] = {~uint64_t{0}, 4, 256, 0xffffffff, (uint64_t{1} << 40) - 1, 8, 15, 2, 4, 3, 1};

void set_field(TensorMap& m, const Replace& f, uint64_t v) {
  switch (f.field) {
    case kAddress:
      m.address = v;
      break;
    case kRank:
      m.rank = static_cast<uint8_t>(v + 1);
      break;  // the operand is rank - 1
    case kBox:
      m.box[f.ordinal] = static_cast<uint16_t>(v);
      break;
    case kDim:
      m.dim[f.ordinal] = static_cast<uint32_t>(v);
      break;
    case kStride:
      m.stride[f.ordinal] = v;
      break;
    case kElementStride:
      m.element_stride[f.ordinal] = static_cast<uint8_t>(v);
      break;
    case kElement:
      m.element = static_cast<Element>(v);
      break;
    case kInterleave:
      m.interleave = static_cast<uint8_t>(v);
      break;
    case kSwizzle:
      m.swizzle = static_cast<SwizzleMode>(v);
      break;
    case kAtom:
      m.atom = static_cast<SwizzleAtom>(v);
      break;
    default:
      m.fill = static_cast<uint8_t>(v);
  }
}

// Whether the map as a whole makes sense is checked where it is used: between two replacements it may not.
Flow replace(Warp& w, const Instr& in, Mask mask) {
  const auto& f = *static_cast<const Replace*>(in.aux);
  for_lanes(mask, [&](int lane) {
    uint8_t* p = w.at(f.map.space, address_of(w, f.map, lane), sizeof(TensorMap), 64, lane, true);
    TensorMap m;
    std::memcpy(static_cast<void*>(&m), p, sizeof m);
    // Kernels also make maps from nothing: 128 zeros, then every field (Triton's tensor descriptors).
    if (std::all_of(p, p + sizeof m, [](uint8_t byte) { return byte == 0; })) m.magic = TensorMap::kMagic;
    if (m.magic != TensorMap::kMagic)
      throw Fault{"the 128 bytes hold neither a tensor map that the host has encoded nor zeros", lane};
    uint64_t v = w.read(f.value, f.wide, lane);
    if (v > kMost[f.field])
      throw Fault{"new value of the field is " + std::to_string(v) + ", allowed: up to " +
                      std::to_string(kMost[f.field]),
                  lane};
    set_field(m, f, v);
    std::memcpy(p, &m, sizeof m);
    if (w.checker)
      w.checker->touch(w, f.map.space, address_of(w, f.map, lane), sizeof(TensorMap), lane, Touch::store);
  });
  ++w.cta->cluster->progress;
  return Flow::next;
}

void decode_replace(Decoder& d) {
  auto f = std::make_shared<Replace>();
  d.need("tile");
  f->field = d.need_any({"global_address", "rank", "box_dim", "global_dim", "global_stride", "element_stride",
                         "elemtype", "interleave_layout", "swizzle_mode", "swizzle_atomicity", "fill_mode"});
  Space space = take_space(d);
  if (space != Space::generic && space != Space::global && space != Space::shared)
    d.fail("a tensor map is replaced in .global or .shared::cta");
  d.need("b1024");
  bool wide = f->field == kAddress || f->field == kStride;
  Type t = d.type_of({wide ? Type::b64 : Type::b32});
  bool ordinal = f->field >= kBox && f->field <= kElementStride;
  d.need_operands(ordinal ? 3 : 2);
  f->map = take_place(d, d.operand(0), space);
  if (ordinal) {
    uint64_t n = d.constant(d.operand(1), "the ordinal of the field"), most = f->field == kStride ? 3 : 4;
    if (n > most) d.fail("ordinal is " + std::to_string(n) + ", allowed: 0 to " + std::to_string(most));
    f->ordinal = static_cast<uint32_t>(n);
  }
  const Operand& value = d.operand(ordinal ? 2 : 1);
  if (f->field >= kElement && !d.is_constant(value)) d.fail("the new value of this field must be a constant");
  f->wide = wide;
  f->value = d.src(value, t);
  d.own(f);
  d.in.fn = replace;
}

struct CopyFence {
  Place to, from;
};

Flow copy_fence(Warp& w, const Instr& in, Mask m) {
  const auto& f = *static_cast<const CopyFence*>(in.aux);
  int lane = first_lane(m);  // the warp copies once
  const uint8_t* from = w.at(f.from.space, address_of(w, f.from, lane), sizeof(TensorMap), 128, lane, false);
  std::memcpy(w.at(f.to.space, address_of(w, f.to, lane), sizeof(TensorMap), 128, lane, true), from,
              sizeof(TensorMap));
  if (w.checker)
    w.checker->touch(w, f.from.space, address_of(w, f.from, lane), sizeof(TensorMap), lane, Touch::load);
  ++w.cta->cluster->progress;
  return Flow::next;
}

void decode_copy_fence(Decoder& d) {
  auto f = std::make_shared<CopyFence>();
  for (std::string_view m : {"global", "shared::cta", "tensormap::generic", "release"}) d.need(m);
  d.need_any({"cta", "cluster", "gpu", "sys"});
  d.need("sync");
  d.need("aligned");
  d.in.aligned = true;
  d.need_operands(3);
  f->to = take_place(d, d.operand(0), Space::global);
  f->from = take_place(d, d.operand(1), Space::shared);
  if (d.constant(d.operand(2), "the size") != sizeof(TensorMap)) d.fail("the size must be 128");
  d.own(f);
  d.in.fn = copy_fence;
}

constexpr Entry kEntries[] = {
    {"tensormap.replace", decode_replace, ".tile; every field"},
    {"tensormap.cp_fenceproxy", decode_copy_fence, ""},
};

}  // namespace

Family tensor_map_family() { return {"tensor maps", kEntries, std::size(kEntries)}; }

}  // namespace tcgen05::vsm

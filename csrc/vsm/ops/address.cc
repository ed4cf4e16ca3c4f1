#include "vsm/ops/address.h"

#include "vsm/checker.h"
#include "vsm/ops/common.h"
#include "vsm/trace.h"

namespace tcgen05::vsm {

void lane_addresses(const Warp& w, Ref base, bool wide, uint64_t offset, Mask m, uint64_t* out) {
  if (wide) {
    auto* a = w.in<uint64_t>(base);
    for_lanes(m, [&](int i) { out[i] = a[i] + offset; });
  } else {
    auto* a = w.in<uint32_t>(base);
    for_lanes(m, [&](int i) { out[i] = static_cast<uint32_t>(a[i] + offset); });
  }
}

namespace {

[[noreturn]] void misaligned(const char* space, uint64_t address, uint32_t align, int lane) {
  throw Fault{std::string(space) + " address " + hex(address) + " is not aligned to " +
                  std::to_string(align) + " bytes",
              lane};
}

[[noreturn]] void outside(const char* space, uint64_t address, uint32_t bytes, uint64_t size, int lane) {
  throw Fault{std::to_string(bytes) + "-byte access at " + space + " address " + hex(address) +
                  " leaves the " + std::to_string(size) + " bytes of this space",
              lane};
}

}  // namespace

Cta& Warp::shared_owner(uint32_t address, int lane) {
  uint32_t rank = address >> kRankShift;
  return rank == cta->rank ? *cta : cta->cluster->cta(rank, lane);
}

uint8_t* Warp::global_at(uint64_t address, uint32_t bytes, int lane, bool write) {
  const Region* r = last_region;
  if (!r || address - r->base >= r->bytes || bytes > r->bytes - (address - r->base)) {
    r = run->config.memory->find(address, bytes);
    if (!r)
      throw Fault{std::to_string(bytes) + "-byte access at global address " + hex(address) +
                      " is outside all buffers: " + run->config.memory->explain(address),
                  lane};
    last_region = r;
  }
  if (write && !r->writable)
    throw Fault{"store to the read-only buffer '" + r->name + "' at " + hex(address), lane};
  if (write && r->writers) cta->cluster->trace->wrote(*r, address - r->base, bytes, thread(lane));
  return r->host + (address - r->base);
}

uint8_t* Warp::at(Space space, uint64_t address, uint32_t bytes, uint32_t align, int lane, bool write) {
  if (space == Space::generic) {
    uint64_t window = address >> kWindowBits << kWindowBits;
    if (window == kSharedWindow) {
      space = Space::shared_cluster;
      address -= window;
    } else if (window == kLocalWindow) {
      space = Space::local;
      address -= window;
    } else if (window == kParamWindow) {
      space = Space::param;
      address -= window;
    } else {
      space = Space::global;
    }
  }
  switch (space) {
    case Space::shared:
    case Space::shared_cluster: {
      if (address >> 32) throw Fault{"shared address " + hex(address) + " has more than 32 bits", lane};
      if (address & (align - 1)) misaligned("shared", address, align, lane);
      Cta& owner = shared_owner(static_cast<uint32_t>(address), lane);
      uint64_t offset = address & kSharedOffsetMask;
      if (offset < kReservedShared || offset + bytes > owner.shared.size())
        outside("shared", address, bytes, owner.shared.size() - kReservedShared, lane);
      return owner.shared.data() + offset;
    }
    case Space::local:
      if (address & (align - 1)) misaligned("local", address, align, lane);
      if (address > program->local_bytes || bytes > program->local_bytes - address)
        outside("local", address, bytes, program->local_bytes, lane);
      return local.data() + size_t{program->local_bytes} * static_cast<size_t>(lane) + address;
    case Space::param: {
      if (address & (align - 1)) misaligned("parameter", address, align, lane);
      const auto& params = run->config.params;
      if (write) throw Fault{"store to a kernel parameter", lane};
      if (address > params.size() || bytes > params.size() - address)
        outside("parameter", address, bytes, params.size(), lane);
      return const_cast<uint8_t*>(params.data()) + address;
    }
    default:
      if (address & (align - 1)) misaligned("global", address, align, lane);
      return global_at(address, bytes, lane, write);
  }
}

Traffic::Where place_of(Space space, uint64_t address) {
  switch (space) {
    case Space::shared:
    case Space::shared_cluster:
      return Traffic::shared;
    case Space::local:
      return Traffic::local;
    case Space::param:
      return Traffic::param;
    case Space::generic: {
      uint64_t window = address >> kWindowBits << kWindowBits;
      return window == kSharedWindow  ? Traffic::shared
             : window == kLocalWindow ? Traffic::local
             : window == kParamWindow ? Traffic::param
                                      : Traffic::global;
    }
    default:
      return Traffic::global;
  }
}

void lane_pointers(Warp& w, Space space, const uint64_t* addresses, const Access& access, Mask m,
                   uint8_t** out) {
  w.cta->cluster->traffic.count(place_of(space, addresses[first_lane(m)]), access.write,
                                uint64_t{access.bytes} * static_cast<uint64_t>(count_lanes(m)));
  if ((space == Space::shared || space == Space::shared_cluster) && !w.checker) {
    // Own shared memory is the usual case: one comparison per lane.
    uint64_t low = uint64_t{w.shared_base} + kReservedShared, size = w.cta->shared.size() - kReservedShared;
    auto base = reinterpret_cast<uintptr_t>(w.cta->shared.data()) + kReservedShared;  // sums may be wild
    uint64_t bad = 0;
    if (size >= access.bytes) {
      for_lanes(m, [&](int i) {
        uint64_t offset = addresses[i] - low;
        bad |= static_cast<uint64_t>(offset > size - access.bytes) | (addresses[i] & (access.align - 1));
        out[i] = reinterpret_cast<uint8_t*>(base + offset);
      });
      if (!bad) return;
    }
  } else if (space == Space::global && w.last_region && !w.checker &&
             (!access.write || (w.last_region->writable && !w.last_region->writers))) {
    const Region& r = *w.last_region;
    uint64_t bad = r.bytes < access.bytes;
    auto base = reinterpret_cast<uintptr_t>(r.host);
    for_lanes(m, [&](int i) {
      uint64_t offset = addresses[i] - r.base;
      bad |= static_cast<uint64_t>(offset > r.bytes - access.bytes) | (addresses[i] & (access.align - 1));
      out[i] = reinterpret_cast<uint8_t*>(base + offset);
    });
    if (!bad) return;
  }
  for_lanes(m,
            [&](int i) { out[i] = w.at(space, addresses[i], access.bytes, access.align, i, access.write); });
  if (w.checker && !access.checked)
    for_lanes(m, [&](int i) {
      w.checker->touch(w, space, addresses[i], access.bytes, i, access.write ? Touch::store : Touch::load);
    });
}

bool take_cache_modifiers(Decoder& d) {
  bool policy = false;
  for (std::string_view prefix : {"L1::", "L2::"}) {
    while (true) {
      std::string_view m = d.take_prefix(prefix);
      if (m.empty()) break;
      policy |= m == "L2::cache_hint";
    }
  }
  while (d.take_any({"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "unified"}) >= 0) {
  }
  return policy;
}

Order take_order_modifiers(Decoder& d) {
  int order = d.take_any({"weak", "relaxed", "volatile", "mmio", "acquire", "release", "acq_rel"});
  d.take("mmio");
  d.take("relaxed");
  d.take_any({"cta", "cluster", "gpu", "sys"});
  return {order > 0, order > 0 && order < 4};
}

Space take_space(Decoder& d) {
  switch (d.take_any({"global", "shared", "shared::cta", "shared::cluster", "local", "param", "param::entry",
                      "param::func", "const"})) {
    case 0:
      return Space::global;
    case 1:
    case 2:
      return Space::shared;
    case 3:
      return Space::shared_cluster;
    case 4:
      return Space::local;
    case 5:
    case 6:
      return Space::param;
    case 7:
      return Space::local;
    case 8:
      return Space::constant;
    default:
      return Space::generic;
  }
}

Space space_of(Decoder& d, const Operand& x, Space named) {
  const Variable* v = d.address_variable(x);
  if (!v) return named;
  if (named == Space::param || named == Space::generic) {
    if (v->space == Space::local) return Space::local;
    if (v->space == Space::param) return Space::param;
  }
  // A variable's name is an address in its own space, whatever the instruction says.
  if (named == Space::generic) return v->space;
  if (named == Space::shared_cluster && v->space == Space::shared) return named;
  if (named != v->space) d.fail("variable '" + v->name + "' is not in the space that the instruction names");
  return named;
}

}  // namespace tcgen05::vsm

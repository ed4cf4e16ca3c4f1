#include "vsm/special.h"

#include <iterator>

#include "vsm/machine.h"

namespace tcgen05::vsm {
namespace {

const LaunchConfig& config(const Warp& w) { return w.run->config; }
const Dim3& cluster_id(const Warp& w) { return w.cta->cluster->id; }

uint64_t tid(const Warp& w, int lane, int axis) {
  const Dim3& b = config(w).block;
  uint32_t t = w.thread(lane);
  return axis == 0 ? t % b.x : axis == 1 ? t / b.x % b.y : t / b.x / b.y;
}

uint64_t linear(const Dim3& at, const Dim3& size) {
  return at.x + uint64_t{size.x} * (at.y + uint64_t{size.y} * at.z);
}

Dim3 cta_in_cluster(const Warp& w) {
  const Dim3& c = config(w).cluster;
  return {w.cta->id.x % c.x, w.cta->id.y % c.y, w.cta->id.z % c.z};
}

uint64_t lower(int lane) { return (uint64_t{1} << lane) - 1; }
uint64_t clock_of(const Warp& w) { return w.cta->cluster->round * 512 + w.instructions; }

#define LANE [](const Warp& w, int lane)->uint64_t
#define WARP [](const Warp& w, int)->uint64_t
#define CONST [](const Warp&, int)->uint64_t
#define XYZ(name, expression)                                \
  {name ".x", false, false, WARP{return (expression).x;      \
  }                                                          \
  }                                                          \
  , {name ".y", false, false, WARP{return (expression).y;    \
  }                                                          \
  }                                                          \
  , {                                                        \
    name ".z", false, false, WARP { return (expression).z; } \
  }

const Special kRows[] = {{"%tid.x", false, false, LANE{return tid(w, lane, 0);
}  // namespace
}  // namespace tcgen05::vsm
, {"%tid.y", false, false, LANE{return tid(w, lane, 1);
}
}
, {"%tid.z", false, false, LANE{return tid(w, lane, 2);
}
}
, XYZ("%ntid", config(w).block), XYZ("%ctaid", w.cta->id), XYZ("%nctaid", config(w).grid),
    XYZ("%clusterid", cluster_id(w)), XYZ("%nclusterid", w.run->clusters),
    XYZ("%cluster_ctaid", cta_in_cluster(w)), XYZ("%cluster_nctaid", config(w).cluster),
    {"%cluster_ctarank", false, false, WARP{return w.cta->rank;
}
}
, {"%cluster_nctarank", false, false, WARP{return config(w).cluster.count();
}
}
, {"%is_explicit_cluster", false, false, WARP{return config(w).cluster.count() > 1;
}
}
, {"%laneid", false, false, [](const Warp&, int lane) -> uint64_t { return static_cast<uint64_t>(lane); }},
    {"%warpid", false, false, WARP{return w.index;
}
}
, {"%nwarpid", false, false, CONST{return 64;
}
}
, {"%smid", false, false, WARP{return linear(w.cta->id, config(w).grid) % 148;
}
}
, {"%nsmid", false, false, CONST{return 148;
}
}
, {"%gridid", true, false, CONST{return 1;
}
}
, {"%lanemask_eq", false, false, [](const Warp&, int lane) -> uint64_t { return uint64_t{1} << lane; }},
    {"%lanemask_lt", false, false, [](const Warp&, int lane) -> uint64_t { return lower(lane); }},
    {"%lanemask_le", false, false, [](const Warp&, int lane) -> uint64_t { return lower(lane + 1); }},
    {"%lanemask_gt", false, false,
     [](const Warp&, int lane) -> uint64_t { return ~lower(lane + 1) & 0xffffffff; }},
    {"%lanemask_ge", false, false,
     [](const Warp&, int lane) -> uint64_t { return ~lower(lane) & 0xffffffff; }},
    {"%dynamic_smem_size", false, false, WARP{return config(w).dynamic_shared;
}
}
, {"%total_smem_size", false, false, WARP{return w.run->shared_bytes - kReservedShared;
}
}
, {"%aggr_smem_size", false, false, WARP{return w.run->shared_bytes;
}
}
, {"%reserved_smem_offset_begin", false, false, CONST{return 0;
}
}
, {"%reserved_smem_offset_end", false, false, CONST{return kReservedShared;
}
}
, {"%reserved_smem_offset_cap", false, false, CONST{return kReservedShared;
}
}
, {"%clock", false, true, WARP{return clock_of(w);
}
}
, {"%clock_hi", false, true, WARP{return clock_of(w) >> 32;
}
}
, {"%clock64", true, true, WARP{return clock_of(w);
}
}
, {"%globaltimer", true, true, WARP{return clock_of(w);
}
}
, {"%globaltimer_lo", false, true, WARP{return clock_of(w);
}
}
, {"%globaltimer_hi", false, true, WARP{return clock_of(w) >> 32;
}
}
, {"WARP_SZ", false, false, CONST{return 32;
}
}
,
}
;

}  // namespace

int find_special(std::string_view name) {
  for (size_t i = 0; i < std::size(kRows); ++i)
    if (kRows[i].name == name) return static_cast<int>(i);
  return -1;
}

const Special& special(int row) { return kRows[row]; }

}  // namespace tcgen05::vsm

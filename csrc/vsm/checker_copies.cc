// Strict mode: asynchronous copies. Those that complete at an mbarrier are numbered per mbarrier, those that
// complete in groups per thread.
#include "vsm/checker.h"

namespace tcgen05::vsm {

uint32_t Checker::copy_into(Warp& w, uint32_t to, uint32_t bytes, uint32_t barrier, int lane, CopyKind kind) {
  mbarrier(w, barrier, lane);
  Barrier& b = mbarriers_[barrier];
  if (!b.copies) {
    b.copies = add_entity(Kind::copy, index(w));
    b.stores = add_entity(Kind::cp_async, index(w));
  }
  AsyncAccess a = begin(w, kind == CopyKind::store ? b.stores : b.copies, 0);
  a.writes = true;
  a.atomic = kind == CopyKind::reduction;
  shared_async(w, to, bytes, lane, a);
  return a.epoch.number;
}

void Checker::copy_from(Warp& w, uint32_t from, uint32_t bytes, uint32_t barrier, int lane) {
  shared_async(w, from, bytes, lane, {now(w, mbarriers_[barrier].copies), 0, false, false});
}

void Checker::copied(uint32_t barrier, uint32_t number, CopyKind kind) {
  arrives(barrier);
  Barrier& b = mbarriers_[barrier];
  uint32_t entity = kind == CopyKind::store ? b.stores : b.copies;
  raise(b.meeting.arriving.memory, entity, number);
  if (kind != CopyKind::store) raise(b.meeting.arriving.proxy, entity, number);
}

Checker::Groups& Checker::groups(const Warp& w, int lane, bool bulk) {
  Groups& g = groups_[{index(w) * 32 + static_cast<uint32_t>(lane), bulk}];
  if (!g.entity) g.entity = add_entity(bulk ? Kind::copy : Kind::cp_async, index(w));
  return g;
}

void Checker::group_read(Warp& w, uint32_t from, uint32_t bytes, int lane) {
  shared_async(w, from, bytes, lane, begin(w, groups(w, lane, true).entity, 0));
}

void Checker::group_write(Warp& w, uint32_t to, uint32_t bytes, int lane) {
  AsyncAccess a = begin(w, groups(w, lane, false).entity, 0);
  a.writes = true;
  shared_async(w, to, bytes, lane, a);
}

void Checker::group_commit(Warp& w, int lane, bool bulk) {
  Groups& g = groups(w, lane, bulk);
  g.ends.push_back(entities_[g.entity].number);
}

void Checker::group_wait(Warp& w, int lane, bool bulk, uint64_t pending) {
  Groups& g = groups(w, lane, bulk);
  while (g.ends.size() > pending) {
    raise(state(w).known.memory, g.entity, g.ends.front());
    g.ends.pop_front();
  }
}

Knowledge Checker::group_completion(Warp& w, int lane) {
  Groups& g = groups(w, lane, false);
  Knowledge k;
  raise(k.memory, g.entity, entities_[g.entity].number);
  return k;
}

}  // namespace tcgen05::vsm

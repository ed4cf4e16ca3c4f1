// Strict mode: shared memory, byte by byte.
#include "vsm/checker.h"

namespace tcgen05::vsm {

// Within a warp: `lanes` (0: all) come after what the lanes of `e` did.
bool Checker::before_lanes(const WarpState& s, Mask lanes, const Epoch& e) {
  if (!lanes || !e.lanes || e.lanes == lanes) return true;
  bool before = true;
  for_lanes(lanes, [&](int i) {
    for_lanes(e.lanes & ~(Mask{1} << i), [&](int j) {
      before = before && s.lanes[static_cast<size_t>(i)][static_cast<size_t>(j)] >= e.number;
    });
  });
  return before;
}

// Keeps reads that nobody is known to come after; `before` is what the reader comes after.
void Checker::add_read(Cell& c, const Epoch& e, const Clock& before, const WarpState& s) {
  auto replaces = [&](Epoch& old) {
    if (old.entity == e.entity) {
      if (old.number == e.number) {
        Mask lanes = e.lanes && old.lanes ? old.lanes | e.lanes : 0;
        old = e;
        old.lanes = lanes;
        return true;
      }
      if (!before_lanes(s, e.lanes, old)) return false;
    } else if (known(before, old.entity) < old.number) {
      return false;
    }
    old = e;
    return true;
  };
  if (!c.read.entity) {
    c.read = e;
  } else if (c.read.entity != kMany) {
    if (replaces(c.read)) return;
    uint32_t slot = static_cast<uint32_t>(readers_.size());
    if (free_readers_.empty()) {
      readers_.emplace_back();
    } else {
      slot = free_readers_.back();
      free_readers_.pop_back();
    }
    readers_[slot] = {c.read, e};
    c.read = {kMany, slot, 0, 0};
  } else {
    for (Epoch& r : readers_[c.read.number])
      if (replaces(r)) return;
    readers_[c.read.number].push_back(e);
  }
}

void Checker::set_write(Cell& c, const Epoch& e) {
  if (c.read.entity == kMany) free_readers_.push_back(c.read.number);
  c.write = e;
  c.read = {0, 0, 0, 0};
}

std::string Checker::why_not(const WarpState& s, const Epoch& e, bool async) const {
  Kind kind = entities_[e.entity].kind;
  bool ordered = known(s.known.memory, e.entity) >= e.number;
  if (kind == Kind::tensor_core)
    return "it may still run: no tcgen05.commit and wait for its mbarrier between them";
  if (kind == Kind::copy) return "it may still run: no wait for its completion between them";
  if (kind == Kind::cp_async && !ordered)
    return "it may still run: no cp.async.wait_group, or mbarrier, between them";
  if (async && ordered) return "no fence.proxy.async between them";
  if (&warps_[entities_[e.entity].warp] == &s) return "no bar.warp.sync, or other barrier, between them";
  return "no barrier between them";
}

std::string Checker::shared_fault(const Cta& cta, uint32_t offset, const char* now, const char* then,
                                  const Epoch& e, const std::string& why) const {
  return std::string(now) + " of shared memory at " + hex(uint64_t{cta.rank} << kRankShift | offset) +
         " is not ordered after the " + then + " by " + who(e.entity) + " (" + source(e.pc) + "): " + why;
}

void Checker::shared_at(Warp& w, uint32_t address, uint32_t bytes, int lane, Touch touch, bool whole_warp) {
  Cta& cta = w.shared_owner(address, lane);
  if (!cta.live_threads) arrives(address);
  uint32_t offset = address & kSharedOffsetMask;
  const WarpState& s = state(w);
  Cell* cells = shared_cells(cta) + offset;
  Epoch e = now(w, entity_of(w));
  if (!whole_warp) e.lanes = Mask{1} << lane;
  for (uint32_t i = 0; i < bytes; ++i) {
    Cell& c = cells[i];
    bool both_atomic = touch == Touch::atomic && (c.tag & kAtomicFlag);
    // Lanes of one store: the last of them wins.
    bool same_store = c.write.entity == e.entity && c.write.number == e.number && c.write.pc == e.pc;
    if (!c.write.entity && touch != Touch::store)
      throw Fault{"shared memory at " + hex(uint64_t{address} + i) + " is read before it is written", lane};
    if (c.write.entity && !both_atomic && !same_store && !before_generic(s, e, c.write)) {
      Fault fault{shared_fault(cta, offset + i, touch == Touch::load ? "a read" : "a write", "write", c.write,
                               why_not(s, c.write, false)),
                  lane};
      if (touch != Touch::store || entities_[c.write.entity].kind != Kind::warp) throw fault;
      const uint8_t* at = cta.shared.data() + offset + i;
      suspects_.push_back({at, *at, std::move(fault)});
    }
    if (touch == Touch::load) {
      add_read(c, e, s.known.memory, s);
      continue;
    }
    if (c.tag & kObjectFlag)
      throw Fault{"a write to shared memory at " + hex(uint64_t{address} + i) + " hits an mbarrier object",
                  lane};
    for_reads(c, [&](const Epoch& r) {
      if (!before_generic(s, e, r))
        throw Fault{shared_fault(cta, offset + i, "a write", "read", r, why_not(s, r, false)), lane};
    });
    set_write(c, e);
    c.tag = touch == Touch::atomic ? kAtomicFlag : 0;
  }
}

void Checker::touch(Warp& w, Space space, uint64_t address, uint32_t bytes, int lane, Touch touch) {
  if (space == Space::generic && address >> kWindowBits << kWindowBits == kSharedWindow) {
    address -= kSharedWindow;
  } else if (space != Space::shared && space != Space::shared_cluster) {
    return;
  }
  shared_at(w, static_cast<uint32_t>(address), bytes, lane, touch, true);
}

void Checker::shared(Warp& w, const Instr& in, Space space, const uint64_t* addresses, uint32_t bytes, Mask m,
                     Touch touch) {
  if (space != Space::generic && space != Space::shared && space != Space::shared_cluster) return;
  const Program& p = *w.program;
  const Uses& u = p.uses[static_cast<size_t>(&in - p.code.data())];
  const Ref* results = p.use_refs.data() + u.begin + u.reads;
  for_lanes(m, [&](int lane) {
    uint64_t a = addresses[lane];
    if (space == Space::generic) {
      if (a >> kWindowBits << kWindowBits != kSharedWindow) return;
      a -= kSharedWindow;
    }
    uint32_t address = static_cast<uint32_t>(a);
    if (touch != Touch::load || !u.writes) return shared_at(w, address, bytes, lane, touch);
    // A register whose bytes were never written has no value; that is an error where it is used.
    const Cell* cells = shared_cells(w.shared_owner(address, lane)) + (address & kSharedOffsetMask);
    uint32_t each = bytes / u.writes;
    for (uint32_t k = 0; k < u.writes; ++k) {
      bool written = true;
      for (uint32_t i = k * each; i < (k + 1) * each; ++i) written = written && cells[i].write.entity;
      if (written) {
        shared_at(w, address + k * each, each, lane, touch);
      } else {
        undefine(results[k], lane);
      }
    }
  });
}

// Work in the async proxy comes after stores of the generic proxy only through a fence.proxy.async. After
// reads, which it overwrites, order is enough (that is how kernels hand buffers back), and so after stores
// that were read.
bool Checker::before_async(const WarpState& s, const AsyncAccess& a, const Epoch& e, bool fence) const {
  if (e.entity == a.epoch.entity && e.number == a.epoch.number) return true;
  fence = fence && in_async_proxy(a.epoch) && !in_async_proxy(e);
  return known(fence ? s.known.proxy : s.known.memory, e.entity) >= e.number;
}

void Checker::shared_async(Warp& w, uint32_t address, uint32_t bytes, int lane, const AsyncAccess& a) {
  Cta& cta = w.shared_owner(address, lane);
  uint32_t offset = address & kSharedOffsetMask;
  const WarpState& s = state(w);
  Cell* cells = shared_cells(cta) + offset;
  for (uint32_t i = 0; i < bytes; ++i) {
    Cell& c = cells[i];
    if (!c.write.entity && !a.writes)
      throw Fault{"shared memory at " + hex(uint64_t{address} + i) + " is read before it is written", lane};
    bool both_atomic = a.atomic && (c.tag & kAtomicFlag);
    if (c.write.entity && !both_atomic && !before_async(s, a, c.write, !(a.writes && c.read.entity)))
      throw Fault{shared_fault(cta, offset + i, a.writes ? "the asynchronous write" : "the asynchronous read",
                               "write", c.write, why_not(s, c.write, true)),
                  lane};
    if (!a.writes) {
      add_read(c, a.epoch, s.known.memory, s);
      continue;
    }
    if (c.tag & kObjectFlag)
      throw Fault{"an asynchronous write to shared memory at " + hex(uint64_t{address} + i) +
                      " hits an mbarrier object",
                  lane};
    for_reads(c, [&](const Epoch& r) {
      if (!before_async(s, a, r, false))
        throw Fault{shared_fault(cta, offset + i, "the asynchronous write", "read", r, why_not(s, r, false)),
                    lane};
    });
    set_write(c, a.epoch);
    c.tag = a.atomic ? kAtomicFlag : 0;
  }
}

}  // namespace tcgen05::vsm

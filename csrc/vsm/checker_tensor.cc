// Strict mode: tensor memory, cell by cell, and what the tensor cores read (PTX ISA 9.7.16.6;
// ptx_contract 13.4).
#include "vsm/checker.h"

namespace tcgen05::vsm {
namespace {

constexpr int kRows = 128, kColumns = 512;

std::string place(const Cta& cta, int row, int column) {
  std::string out = "tensor memory at lane " + std::to_string(row) + ", column " + std::to_string(column);
  if (cta.cluster->ctas.size() > 1) out += " of rank " + std::to_string(cta.rank);
  return out;
}

}  // namespace

Checker::Cell& Checker::tensor_cell(const Cta& cta, int row, int column) {
  Cells& cells = tensor_[cta.rank];
  if (!cells) cells = make_cells(size_t{kRows} * kColumns);
  return cells[static_cast<size_t>(row * kColumns + column)];
}

// ---- allocation ----

void Checker::allocate(Warp& w, uint32_t column, uint32_t columns) {
  const Cta& cta = *w.cta;
  allocations_[{cta.rank, column}] = now(w, entity_of(w)).pc;
  for (int row = 0; row < kRows; ++row)
    for (uint32_t c = column; c < column + columns; ++c) {
      Cell& cell = tensor_cell(cta, row, static_cast<int>(c));
      set_write(cell, {0, 0, 0, 0});
    }
}

// dealloc is synchronous: it comes after the warp's own ld and st, and after everything that is complete
// before it.
void Checker::deallocate(Warp& w, uint32_t column, uint32_t columns, int lane) {
  const Cta& cta = *w.cta;
  const WarpState& s = state(w);
  uint32_t self = index(w);
  auto done = [&](const Epoch& e) {
    const Entity& entity = entities_[e.entity];
    return known(s.known.memory, e.entity) >= e.number ||
           (entity.warp == self && entity.kind != Kind::tensor_core);
  };
  for (int row = 0; row < kRows; ++row)
    for (uint32_t c = column; c < column + columns; ++c) {
      Cell& cell = tensor_cell(cta, row, static_cast<int>(c));
      if (cell.write.entity && !done(cell.write))
        tensor_fault(w, cta, row, static_cast<int>(c), "the deallocation", "write", cell.write, lane);
      for_reads(cell, [&](const Epoch& r) {
        if (!done(r)) tensor_fault(w, cta, row, static_cast<int>(c), "the deallocation", "read", r, lane);
      });
    }
  allocations_.erase({cta.rank, column});
}

void Checker::finish() {
  for (const auto& [at, pc] : allocations_) {
    const Cta& cta = *cluster_.ctas[at.first];
    uint16_t owner = cta.allocator.owner[at.second / 32];
    uint32_t columns = 0;
    for (uint16_t o : cta.allocator.owner) columns += 32 * (o == owner);
    throw ExecutionError("tensor memory is not deallocated: the threads of CTA (" + std::to_string(cta.id.x) +
                         ", " + std::to_string(cta.id.y) + ", " + std::to_string(cta.id.z) +
                         ") have exited and " + std::to_string(columns) + " columns from column " +
                         std::to_string(at.second) + " on are still allocated\n  by " + source(pc));
  }
}

// ---- accesses ----

uint32_t Checker::tensor_entity(const Warp& w, int lane) {
  auto [found, added] =
      tensor_entities_.try_emplace(uint64_t{index(w)} * 32 + static_cast<uint64_t>(lane), 0);
  if (added) found->second = add_entity(Kind::tensor_core, index(w));
  return found->second;
}

AsyncAccess Checker::begin(Warp& w, uint32_t entity, uint32_t tag) {
  ++entities_[entity].number;
  return {now(w, entity), tag, false, false};
}

AsyncAccess Checker::tensor_load(Warp& w) { return begin(w, load_entity(w), 0); }
AsyncAccess Checker::tensor_store(Warp& w) { return begin(w, store_entity(w), 0); }
AsyncAccess Checker::tensor_copy(Warp& w, int lane) { return begin(w, tensor_entity(w, lane), kCopyTag); }

void Checker::issued(Warp& w, const AsyncAccess& a) {
  raise(state(w).issued, a.epoch.entity, a.epoch.number);
}

// Whether `e`, which read or (with `was_write`) wrote the cell, comes before the access `a` of the warp.
bool Checker::before_tensor(const WarpState& s, const AsyncAccess& a, const Cell& c, const Epoch& e,
                            bool was_write) const {
  if (e.entity == a.epoch.entity && e.number == a.epoch.number) return true;
  if (known(s.tensor, e.entity) >= e.number) return true;
  // Pairs that form a pipeline run in the order of issue: cp before mma, mma before mma with the same
  // accumulator and shape; and what kernels take for granted: mma and cp behind an mma that reads what they
  // write.
  bool cores =
      entities_[e.entity].kind == Kind::tensor_core && entities_[a.epoch.entity].kind == Kind::tensor_core;
  if (!cores || known(s.issued, e.entity) < e.number) return false;
  return !was_write || c.tag == kCopyTag || a.tag == kCopyTag || c.tag == a.tag;
}

std::string Checker::why_not_tensor(const WarpState& s, const Epoch& e) const {
  const Entity& entity = entities_[e.entity];
  bool own = &warps_[entity.warp] == &s;
  if (known(s.known.memory, e.entity) < e.number && known(s.known.tensor, e.entity) < e.number) {
    if (entity.kind == Kind::tensor_core)
      return "it may still run: no tcgen05.commit and wait for its mbarrier between them";
    std::string wait = entity.kind == Kind::tensor_load ? "tcgen05.wait::ld" : "tcgen05.wait::st";
    return "it may still run: no " + wait + (own ? " between them" : " and barrier between them");
  }
  if (known(s.known.tensor, e.entity) >= e.number)
    return "no tcgen05.fence::after_thread_sync behind the barrier between them";
  return "no tcgen05.fence::before_thread_sync in front of the barrier between them";
}

void Checker::tensor_fault(Warp& w, const Cta& cta, int row, int column, const char* now, const char* then,
                           const Epoch& e, int lane) {
  throw Fault{std::string(now) + " of " + place(cta, row, column) + " is not ordered after the " + then +
                  " by " + who(e.entity) + " (" + source(e.pc) + "): " + why_not_tensor(state(w), e),
              lane};
}

namespace {

void check_allocated(const Cta& cta, int row, int column, int lane) {
  if (!cta.allocator.owner[static_cast<size_t>(column / 32)])
    throw Fault{place(cta, row, column) + " is not allocated", lane};
}

}  // namespace

bool Checker::tensor_read(Warp& w, const AsyncAccess& a, Cta& cta, int row, int column, int lane) {
  check_allocated(cta, row, column, lane);
  Cell& c = tensor_cell(cta, row, column);
  if (!c.write.entity) return false;
  const WarpState& s = state(w);
  if (!before_tensor(s, a, c, c.write, true))
    tensor_fault(w, cta, row, column, "the read", "write", c.write, lane);
  add_read(c, a.epoch, s.tensor, s);
  return true;
}

void Checker::tensor_write(Warp& w, const AsyncAccess& a, Cta& cta, int row, int column, int lane) {
  check_allocated(cta, row, column, lane);
  Cell& c = tensor_cell(cta, row, column);
  const WarpState& s = state(w);
  if (c.write.entity && !before_tensor(s, a, c, c.write, true))
    tensor_fault(w, cta, row, column, "the write", "write", c.write, lane);
  for_reads(c, [&](const Epoch& r) {
    if (!before_tensor(s, a, c, r, false)) tensor_fault(w, cta, row, column, "the write", "read", r, lane);
  });
  set_write(c, a.epoch);
  c.tag = a.tag;
}

void Checker::mma(Warp& w, int lane, const model::Mma& mma, const std::vector<Cta*>& ctas,
                  const model::CtaMemory* memories) {
  // Accumulator and shape; never kCopyTag.
  uint32_t tag = (mma.d * 2654435761u ^ (mma.idesc & 0x1f7e0000u)) | 0x80000000u;
  struct Walk : model::Footprint {
    Checker& checker;
    Warp& w;
    int lane;
    AsyncAccess a;
    const std::vector<Cta*>& ctas;
    Walk(Checker& c, Warp& warp, int l, AsyncAccess access, const std::vector<Cta*>& all)
        : checker(c), w(warp), lane(l), a(access), ctas(all) {}
    void shared_read(int cta, uint32_t address, uint32_t bytes) override {
      checker.shared_async(w, ctas[static_cast<size_t>(cta)]->rank << kRankShift | address, bytes, lane, a);
    }
    void tmem_read(int cta, int row, int column, int columns) override {
      for (int c = column; c < column + columns; ++c)
        if (!checker.tensor_read(w, a, *ctas[static_cast<size_t>(cta)], row, c, lane))
          throw Fault{place(*ctas[static_cast<size_t>(cta)], row, c) + " is read before it is written", lane};
    }
    void tmem_write(int cta, int row, int column, int columns) override {
      for (int c = column; c < column + columns; ++c)
        checker.tensor_write(w, a, *ctas[static_cast<size_t>(cta)], row, c, lane);
    }
  };
  Walk walk(*this, w, lane, begin(w, tensor_entity(w, lane), tag), ctas);
  model::footprint(mma, memories, walk);
  issued(w, walk.a);
}

// ---- completion ----

void Checker::completed(Warp& w, uint32_t entity) {
  WarpState& s = state(w);
  uint32_t number = entities_[entity].number;
  raise(s.known.memory, entity, number);
  raise(s.tensor, entity, number);
}

void Checker::wait_loads(Warp& w) { completed(w, load_entity(w)); }
void Checker::wait_stores(Warp& w) { completed(w, store_entity(w)); }

// What the arrival of a tcgen05.commit brings: it implies fence::before_thread_sync.
Knowledge Checker::commit(Warp& w, int lane) {
  before_thread_sync(w);
  Knowledge k = state(w).known;
  uint32_t entity = tensor_entity(w, lane);
  for (Clock* c : {&k.memory, &k.proxy, &k.tensor, &k.issued}) raise(*c, entity, entities_[entity].number);
  tick(w);
  return k;
}

}  // namespace tcgen05::vsm

// Strict mode: registers, and who has synchronised with whom. Memories: checker_memory.cc, checker_tensor.cc.
#include "vsm/checker.h"

#include <algorithm>

namespace tcgen05::vsm {
void raise(Clock& c, uint32_t entity, uint32_t number) {
  if (entity >= c.size()) c.resize(entity + 1, 0);
  c[entity] = std::max(c[entity], number);
}

void join(Clock& into, const Clock& from) {
  if (from.size() > into.size()) into.resize(from.size(), 0);
  for (size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

namespace {

void join(Knowledge& into, const Knowledge& from) {
  vsm::join(into.memory, from.memory);
  vsm::join(into.proxy, from.proxy);
  vsm::join(into.tensor, from.tensor);
  vsm::join(into.issued, from.issued);
}

uint32_t pc_of(const Warp& w) { return w.groups[w.current].pc; }

}  // namespace

Checker::Checker(Cluster& cluster) : cluster_(cluster) {
  warps_per_cta_ = static_cast<uint32_t>(cluster.ctas[0]->warps.size());
  size_t ctas = cluster.ctas.size(), warps = ctas * warps_per_cta_;
  entities_.resize(1);
  for (Kind kind : {Kind::warp, Kind::tensor_load, Kind::tensor_store})
    for (uint32_t w = 0; w < warps; ++w) entities_.push_back({kind, w, kind == Kind::warp ? 1u : 0u});
  warps_.resize(warps);
  barriers_.resize(ctas);
  tensor_.resize(ctas);
  for (auto& cta : cluster.ctas) {
    shared_.push_back(make_cells(cta->shared.size()));
    for (auto& w : cta->warps) start(*w);
  }
}

void Checker::start(Warp& w) {
  w.checker = this;
  WarpState& s = state(w);
  raise(s.known.memory, entity_of(w), 1);
  s.defined.assign(w.program->register_bytes / 4 + 1, 0);
  for (const Preset& p : w.program->presets) s.defined[p.slot / 4] = ~Mask{0};
}

uint32_t Checker::index(const Warp& w) const { return w.cta->rank * warps_per_cta_ + w.index; }

uint32_t Checker::add_entity(Kind kind, uint32_t warp) {
  entities_.push_back({kind, warp, 0});
  return static_cast<uint32_t>(entities_.size()) - 1;
}

Epoch Checker::now(const Warp& w, uint32_t entity) const {
  return {entity, entities_[entity].number, pc_of(w), 0};
}

// What the warp does from now on is not part of what it has released.
void Checker::tick(Warp& w) {
  uint32_t self = entity_of(w);
  raise(state(w).known.memory, self, ++entities_[self].number);
}

// ---- registers ----

namespace {

std::string register_name(const Program& p, Ref r) {
  for (const auto& [slot, reg] : p.registers)
    if (slot == r) return "register " + reg->name;
  return "a register";
}

}  // namespace

void Checker::check_guard(Warp& w, const Instr& in, Mask lanes) {
  if (in.predicate & kConstantRef) return;
  if (Mask bad = lanes & ~state(w).defined[in.predicate / 4])
    throw Fault{register_name(*w.program, in.predicate) + " decides here and has no defined value",
                first_lane(bad)};
}

void Checker::before(Warp& w, const Instr& in, Mask m) {
  const Program& p = *w.program;
  const Uses& u = p.uses[static_cast<size_t>(&in - p.code.data())];
  std::vector<Mask>& defined = state(w).defined;
  const Ref* refs = p.use_refs.data() + u.begin;
  Mask all = ~Mask{0};
  for (uint32_t i = 0; i < u.reads; ++i) all &= defined[refs[i] / 4];
  if (!u.pure && (m & ~all)) {
    for (uint32_t i = 0; i < u.reads; ++i)
      if (Mask bad = m & ~defined[refs[i] / 4])
        throw Fault{register_name(p, refs[i]) + " is used here and has no defined value", first_lane(bad)};
  }
  for (uint32_t i = u.reads; i < uint32_t{u.reads} + u.writes; ++i) {
    Mask& d = defined[refs[i] / 4];
    d = u.pure ? (d & ~m) | (all & m) : d | m;
  }
}

void Checker::after(Warp& w) {
  for (const Suspect& s : suspects_)
    if (*s.at != s.before) throw s.fault;
  suspects_.clear();
  if (undefined_.empty()) return;
  std::vector<Mask>& defined = state(w).defined;
  for (auto [r, lane] : undefined_) defined[r / 4] &= ~(Mask{1} << lane);
  undefined_.clear();
}

// ---- threads ----

void Checker::arrive(const Knowledge& with, Meeting& at) { join(at.arriving, with); }

void Checker::arrive(Warp& w, Meeting& at, bool relaxed) {
  WarpState& s = state(w);
  join(at.arriving.memory, relaxed ? s.fenced.memory : s.known.memory);
  join(at.arriving.proxy, relaxed ? s.fenced.proxy : s.known.proxy);
  join(at.arriving.tensor, s.known.tensor);
  join(at.arriving.issued, s.known.issued);
  tick(w);
}

void Checker::wait(Warp& w, const Meeting& at, bool relaxed, Mask lanes) {
  WarpState& s = state(w);
  for_lanes(lanes, [&](int i) { s.lanes[static_cast<size_t>(i)].fill(entities_[entity_of(w)].number); });
  tick(w);
  Knowledge& memory = relaxed ? s.pending : s.known;
  join(memory.memory, at.done.memory);
  join(memory.proxy, at.done.proxy);
  join(s.known.tensor, at.done.tensor);
  join(s.known.issued, at.done.issued);
}

void Checker::warp_sync(Warp& w, Mask members) {
  WarpState& s = state(w);
  std::array<uint32_t, 32> all{};
  for_lanes(members, [&](int i) {
    const auto& row = s.lanes[static_cast<size_t>(i)];
    for (size_t j = 0; j < 32; ++j) all[j] = std::max(all[j], row[j]);
  });
  for_lanes(members, [&](int i) { all[static_cast<size_t>(i)] = entities_[entity_of(w)].number; });
  for_lanes(members, [&](int i) { s.lanes[static_cast<size_t>(i)] = all; });
  tick(w);
}

Meeting& Checker::barrier(const Cta& cta, uint32_t id) { return barriers_[cta.rank][id]; }

void Checker::memory_fence(Warp& w) {
  WarpState& s = state(w);
  join(s.known.memory, s.pending.memory);
  join(s.known.proxy, s.pending.proxy);
  s.fenced.memory = s.known.memory;
  s.fenced.proxy = s.known.proxy;
  tick(w);
}

void Checker::proxy_fence(Warp& w) {
  WarpState& s = state(w);
  join(s.known.proxy, s.known.memory);
  tick(w);
}

void Checker::before_thread_sync(Warp& w) {
  WarpState& s = state(w);
  join(s.known.tensor, s.tensor);
  join(s.known.issued, s.issued);
}

void Checker::after_thread_sync(Warp& w) {
  WarpState& s = state(w);
  join(s.tensor, s.known.tensor);
  join(s.issued, s.known.issued);
}

void Checker::release(Warp& w, uint64_t location) {
  Meeting& at = strong_[location % kStrongLocations];
  arrive(w, at, false);
  complete(at);
}

// ---- mbarriers ----

void Checker::mbarrier_init(Warp& w, uint32_t address, int lane) {
  shared_at(w, address, 8, lane, Touch::store, true);
  Cell* cells = shared_cells(w.shared_owner(address, lane)) + (address & kSharedOffsetMask);
  for (int i = 0; i < 8; ++i) cells[i].tag |= kObjectFlag;
  Barrier& b = mbarriers_[address];
  b.init = now(w, entity_of(w));
}

void Checker::mbarrier_inval(Warp& w, uint32_t address, int lane) {
  mbarrier(w, address, lane);
  Cell* cells = shared_cells(w.shared_owner(address, lane)) + (address & kSharedOffsetMask);
  for (int i = 0; i < 8; ++i) cells[i].tag &= ~kObjectFlag;
  shared_at(w, address, 8, lane, Touch::atomic, true);
}

Meeting& Checker::mbarrier(Warp& w, uint32_t address, int lane) {
  Barrier& b = mbarriers_[address];
  if (b.init.entity && b.init.entity != entity_of(w) &&
      known(state(w).known.memory, b.init.entity) < b.init.number)
    throw Fault{"the mbarrier at " + hex(address) +
                    " is used without a barrier behind its initialisation by " + who(b.init.entity) + " (" +
                    source(b.init.pc) + ")",
                lane};
  return b.meeting;
}

void Checker::mbarrier_arrive(uint32_t address, const Knowledge& with) {
  arrives(address);
  join(mbarriers_[address].meeting.arriving, with);
}

void Checker::mbarrier_complete(uint32_t address) { complete(mbarriers_[address].meeting); }

bool Checker::answers_not_yet(Warp& w, uint32_t address, uint32_t parity) {
  return state(w).polled.emplace(address, parity).second;
}

void Checker::answered(Warp& w, uint32_t address, uint32_t parity) {
  state(w).polled.erase({address, parity});
}

void Checker::arrives(uint32_t address) const {
  const Cta& cta = *cluster_.ctas[address >> kRankShift];
  if (!cta.live_threads)
    throw Fault{"shared memory at " + hex(address) + " is reached when all threads of its CTA have exited",
                -1};
}

// ---- messages ----

std::string Checker::source(uint32_t pc) const {
  const Program& p = *cluster_.run->program;
  const Statement& s = *p.origins[p.code[pc].origin].statement;
  return "line " + std::to_string(s.line) + ": " + std::string(s.text.substr(0, 80));
}

std::string Checker::who(uint32_t entity) const {
  uint32_t w = entities_[entity].warp;
  std::string out = "warp " + std::to_string(w % warps_per_cta_);
  if (cluster_.ctas.size() > 1) out += " of rank " + std::to_string(w / warps_per_cta_);
  return out;
}

}  // namespace tcgen05::vsm

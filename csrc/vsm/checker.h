// Strict mode: reports what hardware does not tell. docs/vsm.md, "Strict mode", says by which rules.
//
// Who is ordered before whom is kept in vector clocks. Their entities are warps (accesses of the generic
// proxy), and for asynchronous work its issuers: a warp's tcgen05.ld and .st, a thread's tcgen05.mma and .cp,
// a warp's cp.async, an mbarrier's copies. Works of one entity are numbered; a clock holds, per entity, the
// last number known.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/instruction.h"
#include "vsm/machine.h"

namespace tcgen05::vsm {

using Clock = std::vector<uint32_t>;

inline uint32_t known(const Clock& c, uint32_t entity) { return entity < c.size() ? c[entity] : 0; }
void raise(Clock& c, uint32_t entity, uint32_t number);
void join(Clock& into, const Clock& from);

// What comes before a point of the program, in base causality order (PTX ISA 8.9.5, 9.7.16.6).
struct Knowledge {
  Clock memory;  // accesses to memory; asynchronous works that are complete
  Clock proxy;   // accesses with a fence.proxy.async on the way
  Clock tensor;  // tcgen05.ld, .st, .mma, .cp: complete, and ordered before execution by fence or commit
  Clock issued;  //   ... issued, and ordered so: enough for pairs that form a pipeline
};

// Where threads meet: a barrier.
struct Meeting {
  Knowledge arriving;  // of the current phase
  Knowledge done;      // of phases that are complete
};

enum class Touch : uint8_t { load, store, atomic };
// Asynchronous work that an mbarrier counts: copies of the async proxy; st.async (generic proxy); reductions.
enum class CopyKind : uint8_t { copy, store, reduction };

struct Epoch {
  uint32_t entity;  // 0: none
  uint32_t number;
  uint32_t pc;  // its instruction
  Mask lanes;   // of a warp's generic access; 0: of the warp as a whole
};

// An asynchronous access that is being checked.
struct AsyncAccess {
  Epoch epoch;
  uint32_t tag = 0;     // of writes to tensor memory: mma: accumulator and shape; kCopyTag: tcgen05.cp
  bool writes = false;  // shared memory
  bool atomic = false;
};

class Checker {
 public:
  explicit Checker(Cluster& cluster);

  void start(Warp& w);
  // Registers: the guard predicate of an instruction, what it reads and writes, what it could not define.
  void check_guard(Warp& w, const Instr& in, Mask lanes);
  void before(Warp& w, const Instr& in, Mask m);
  void after(Warp& w);
  void undefine(Ref r, int lane) { undefined_.emplace_back(r, lane); }

  // Synchronisation. Relaxed operations order memory only with fences.
  void arrive(Warp& w, Meeting& at, bool relaxed);
  void arrive(const Knowledge& with, Meeting& at);
  void complete(Meeting& at) { at.done = at.arriving; }
  void wait(Warp& w, const Meeting& at, bool relaxed, Mask lanes);
  void warp_sync(Warp& w, Mask members);
  Meeting& barrier(const Cta& cta, uint32_t id);
  Meeting& cluster_barrier() { return cluster_barrier_; }
  // Accesses that synchronise (atomics, .relaxed and stronger, .volatile) are taken as acquire and release,
  // which reports less than it might and nothing that is right.
  void acquire(Warp& w, uint64_t location, int lane) {
    wait(w, strong_[location % kStrongLocations], false, Mask{1} << lane);
  }
  void release(Warp& w, uint64_t location);
  void memory_fence(Warp& w);
  void proxy_fence(Warp& w);
  void before_thread_sync(Warp& w);
  void after_thread_sync(Warp& w);

  // mbarriers, by shared address.
  void mbarrier_init(Warp& w, uint32_t address, int lane);
  void mbarrier_inval(Warp& w, uint32_t address, int lane);
  // The object at `address`, which must be initialised before in causality order; `done` of its meeting is
  // current.
  Meeting& mbarrier(Warp& w, uint32_t address, int lane);
  void mbarrier_arrive(uint32_t address,
                       const Knowledge& with);  // of an asynchronous work, when it is complete
  void mbarrier_complete(uint32_t address);
  // try_wait may answer "not yet": true the first time that a warp asks in vain.
  bool answers_not_yet(Warp& w, uint32_t address, uint32_t parity);
  void answered(Warp& w, uint32_t address, uint32_t parity);

  // Shared memory, generic proxy.
  void shared(Warp& w, const Instr& in, Space space, const uint64_t* addresses, uint32_t bytes, Mask m,
              Touch touch);
  void shared_at(Warp& w, uint32_t address, uint32_t bytes, int lane, Touch touch, bool whole_warp = false);
  // The same of any space, by the warp as a whole.
  void touch(Warp& w, Space space, uint64_t address, uint32_t bytes, int lane, Touch touch);
  // ... asynchronous work, at its issue.
  void shared_async(Warp& w, uint32_t address, uint32_t bytes, int lane, const AsyncAccess& a);

  // Asynchronous copies (checker_copies.cc). The number of a copy goes to `copied` when it takes effect, in
  // front of its complete_tx; `copy_from` follows `copy_into` when the source is shared memory, too.
  uint32_t copy_into(Warp& w, uint32_t to, uint32_t bytes, uint32_t barrier, int lane,
                     CopyKind kind = CopyKind::copy);
  void copy_from(Warp& w, uint32_t from, uint32_t bytes, uint32_t barrier, int lane);
  void copied(uint32_t barrier, uint32_t number, CopyKind kind = CopyKind::copy);
  void group_read(Warp& w, uint32_t from, uint32_t bytes, int lane);  // bulk_group
  void group_write(Warp& w, uint32_t to, uint32_t bytes, int lane);   // cp.async
  void group_commit(Warp& w, int lane, bool bulk);
  void group_wait(Warp& w, int lane, bool bulk, uint64_t pending);
  Knowledge group_completion(Warp& w, int lane);  // of the thread's earlier cp.async

  // Tensor memory.
  void allocate(Warp& w, uint32_t column, uint32_t columns);
  void deallocate(Warp& w, uint32_t column, uint32_t columns, int lane);
  AsyncAccess tensor_load(Warp& w);
  AsyncAccess tensor_store(Warp& w);
  AsyncAccess tensor_copy(Warp& w, int lane);
  // One cell; a read says whether the cell was ever written.
  bool tensor_read(Warp& w, const AsyncAccess& a, Cta& cta, int row, int column, int lane);
  void tensor_write(Warp& w, const AsyncAccess& a, Cta& cta, int row, int column, int lane);
  void mma(Warp& w, int lane, const model::Mma& mma, const std::vector<Cta*>& ctas,
           const model::CtaMemory* memories);
  void issued(Warp& w, const AsyncAccess& a);
  void wait_loads(Warp& w);
  void wait_stores(Warp& w);
  Knowledge commit(Warp& w, int lane);

  // An asynchronous work reaches the shared memory at `address` now: its CTA must still be there.
  void arrives(uint32_t address) const;
  // After the last thread has exited.
  void finish();

 private:
  enum class Kind : uint8_t { none, warp, tensor_load, tensor_store, tensor_core, copy, cp_async };
  struct Entity {
    Kind kind = Kind::none;
    uint32_t warp = 0;  // in the cluster
    uint32_t number = 0;
  };
  struct WarpState {
    Knowledge known;
    Clock tensor, issued;  // of `known`, what its next asynchronous tcgen05 instruction comes after
    Knowledge fenced;      // what a relaxed operation releases
    Knowledge pending;     // what relaxed operations have acquired
    std::vector<Mask> defined;
    std::array<std::array<uint32_t, 32>, 32> lanes{};  // [i][j]: accesses of lane j that lane i comes after
    std::set<std::pair<uint32_t, uint32_t>> polled;    // (mbarrier, parity) that were asked in vain
  };
  // A byte of shared memory or a cell of tensor memory: the last write and the reads since then; more than
  // one are in readers_[read.number], with read.entity kMany.
  struct Cell {
    Epoch write, read;
    uint32_t tag;  // of tensor memory: AsyncAccess::tag; of shared memory: flags
  };
  struct Free {
    void operator()(Cell* p) const { std::free(p); }
  };
  using Cells = std::unique_ptr<Cell[], Free>;  // zeros that cost nothing until they are touched
  static constexpr uint32_t kMany = ~0u;
  static constexpr uint32_t kAtomicFlag = 1, kObjectFlag = 2;  // written by an atomic; an mbarrier
  static constexpr uint32_t kCopyTag = 1;
  struct Barrier {
    Meeting meeting;
    Epoch init;
    uint32_t copies = 0, stores = 0;  // entities of the works that it counts
  };
  // Two stores without order are harmless if they store the same: known when the second one has been
  // executed.
  struct Suspect {
    const uint8_t* at;
    uint8_t before;
    Fault fault;
  };
  struct Groups {
    uint32_t entity = 0;
    std::deque<uint32_t> ends;  // per committed group that may be pending: its last number
  };

  uint32_t index(const Warp& w) const;
  WarpState& state(const Warp& w) { return warps_[index(w)]; }
  uint32_t entity_of(const Warp& w) const { return 1 + index(w); }
  uint32_t load_entity(const Warp& w) const { return entity_of(w) + static_cast<uint32_t>(warps_.size()); }
  uint32_t store_entity(const Warp& w) const { return load_entity(w) + static_cast<uint32_t>(warps_.size()); }
  Groups& groups(const Warp& w, int lane, bool bulk);
  uint32_t tensor_entity(const Warp& w, int lane);
  AsyncAccess begin(Warp& w, uint32_t entity, uint32_t tag);
  void completed(Warp& w, uint32_t entity);
  uint32_t add_entity(Kind kind, uint32_t warp);
  static Cells make_cells(size_t n) { return Cells(static_cast<Cell*>(std::calloc(n, sizeof(Cell)))); }
  Cell* shared_cells(const Cta& cta) { return shared_[cta.rank].get(); }
  Cell& tensor_cell(const Cta& cta, int row, int column);
  Epoch now(const Warp& w, uint32_t entity) const;
  void tick(Warp& w);

  void add_read(Cell& c, const Epoch& e, const Clock& before, const WarpState& s);
  template <class F>
  void for_reads(const Cell& c, F&& f) const {
    if (c.read.entity == kMany) {
      for (const Epoch& e : readers_[c.read.number]) f(e);
    } else if (c.read.entity) {
      f(c.read);
    }
  }
  void set_write(Cell& c, const Epoch& e);
  // Whether an access comes before what the warp does now.
  bool before_generic(const WarpState& s, const Epoch& now, const Epoch& e) const {
    return e.entity == now.entity ? before_lanes(s, now.lanes, e)
                                  : known(s.known.memory, e.entity) >= e.number;
  }
  static bool before_lanes(const WarpState& s, Mask lanes, const Epoch& e);
  bool in_async_proxy(const Epoch& e) const {
    Kind k = entities_[e.entity].kind;
    return k != Kind::warp && k != Kind::cp_async;
  }
  bool before_async(const WarpState& s, const AsyncAccess& a, const Epoch& e, bool fence) const;
  std::string shared_fault(const Cta& cta, uint32_t offset, const char* now, const char* then, const Epoch& e,
                           const std::string& why) const;
  bool before_tensor(const WarpState& s, const AsyncAccess& a, const Cell& c, const Epoch& e,
                     bool was_write) const;

  std::string source(uint32_t pc) const;
  std::string who(uint32_t entity) const;
  std::string why_not(const WarpState& s, const Epoch& e, bool async) const;
  std::string why_not_tensor(const WarpState& s, const Epoch& e) const;
  [[noreturn]] void tensor_fault(Warp& w, const Cta& cta, int row, int column, const char* now,
                                 const char* then, const Epoch& e, int lane);

  Cluster& cluster_;
  uint32_t warps_per_cta_ = 0;
  std::vector<Entity> entities_;
  std::vector<WarpState> warps_;
  std::vector<Cells> shared_, tensor_;  // per CTA
  std::vector<uint32_t> free_readers_;
  std::vector<std::vector<Epoch>> readers_;
  std::vector<std::array<Meeting, 16>> barriers_;  // per CTA
  Meeting cluster_barrier_;
  std::map<uint32_t, Barrier> mbarriers_;
  static constexpr uint64_t kStrongLocations = 4093;  // more share a meeting, which hides a little
  std::unordered_map<uint64_t, Meeting> strong_;      // locations of strong accesses
  std::unordered_map<uint64_t, uint32_t> tensor_entities_;
  std::map<std::pair<uint32_t, bool>, Groups> groups_;             // (thread, bulk)
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> allocations_;  // (rank, column): instruction
  std::vector<std::pair<Ref, int>> undefined_;
  std::vector<Suspect> suspects_;
};

}  // namespace tcgen05::vsm

// The machine that executes a Program: clusters, CTAs, warps and their memories. See docs/vsm.md for how it
// schedules and why that is faithful.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "vsm/error.h"
#include "vsm/memory.h"
#include "vsm/program.h"

namespace tcgen05::vsm {

struct Cta;
struct Cluster;
struct Run;
class Checker;  // strict mode
class Trace;    // trace.h
class TraceSink;

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t{x} * y * z; }
  uint32_t operator[](int i) const { return i == 0 ? x : i == 1 ? y : z; }
};

// When asynchronous work takes effect: after a few rounds of the scheduler; as late as possible (when no
// warp can run); at issue (a legal schedule, but one that real kernels do not expect).
enum class Schedule : uint8_t { fair, late, eager };

// Why a group of lanes does not run.
struct WaitKind {
  const char* what;
  bool (*ready)(Warp&, uint64_t a, uint64_t b);
  bool spin;  // the instruction may also answer "not yet": woken when nothing else can happen
};

struct Wait {
  const WaitKind* kind = nullptr;
  uint64_t a = 0, b = 0;
};

// Lanes of a warp that share a program counter.
struct Group {
  Mask mask = 0;
  uint32_t pc = 0;
  uint32_t stage = 0;       // of an instruction that waits in the middle
  bool timed_out = false;   // a spinning wait was ended
  bool converging = false;  // waits for the other lanes that the instruction names
  Mask wanted = 0;          // those lanes
  uint64_t last_run = 0;
  Wait wait;
  std::vector<uint32_t> calls;  // return addresses
};

struct LaneState {  // what only some kernels need, per lane
  uint32_t cluster_phase = 0;
};

struct Warp {
  // Register file and constants; see Ref.
  const uint8_t* base[2] = {nullptr, nullptr};
  uint8_t* registers = nullptr;
  Cta* cta = nullptr;
  Run* run = nullptr;
  const Program* program = nullptr;
  uint32_t index = 0;        // in the CTA
  uint32_t shared_base = 0;  // rank << 24
  Mask full = 0;             // lanes that exist
  Mask alive = 0;            // lanes that have not exited
  Mask carry = 0;            // condition code of .cc instructions
  std::vector<Group> groups;
  size_t current = 0;
  uint64_t instructions = 0;
  std::vector<uint8_t> local;  // lane-major
  std::vector<uint8_t> register_file;
  std::array<LaneState, 32> lanes;
  std::shared_ptr<void> copies;  // cp.async groups (families/async copies)
  mutable const Region* last_region = nullptr;
  Checker* checker = nullptr;  // null unless strict

  template <class S>
  S* out(Ref r) {
    return reinterpret_cast<S*>(registers + r);
  }
  template <class S>
  const S* in(Ref r) const {
    return reinterpret_cast<const S*>(base[r >> 31] + (r & ~kConstantRef));
  }
  Mask predicate(Ref r) const { return *in<Mask>(r); }
  void set_predicate(Ref r, Mask lanes_written, Mask value) {
    Mask* p = out<Mask>(r);
    *p = (*p & ~lanes_written) | (value & lanes_written);
  }
  // One lane of an operand whose slot is 32 or 64 bits wide.
  uint64_t read(Ref r, bool wide, int lane) const {
    return wide ? in<uint64_t>(r)[lane] : in<uint32_t>(r)[lane];
  }

  Group& group() { return groups[current]; }
  Flow wait(const WaitKind& kind, uint64_t a = 0, uint64_t b = 0, Flow flow = Flow::wait) {
    group().wait = {&kind, a, b};
    return flow;
  }
  uint32_t thread(int lane) const { return index * 32 + static_cast<uint32_t>(lane); }

  // Host address of [address, address + bytes) in a space, for `lane`; throws Fault when it is out of
  // bounds or not aligned to `align`.
  uint8_t* at(Space space, uint64_t address, uint32_t bytes, uint32_t align, int lane, bool write);
  uint8_t* global_at(uint64_t address, uint32_t bytes, int lane, bool write);
  // The CTA and the offset that a shared address names.
  Cta& shared_owner(uint32_t address, int lane);
};

inline int first_lane(Mask m) { return __builtin_ctz(m); }
inline int count_lanes(Mask m) { return __builtin_popcount(m); }

// Calls f(lane) for the lanes of `m`; the loop over all 32 is the one that compilers vectorise.
template <class F>
inline void for_lanes(Mask m, F&& f) {
  if (m == ~Mask{0}) {
#pragma GCC ivdep
    for (int lane = 0; lane < 32; ++lane) f(lane);
  } else {
    for (Mask rest = m; rest; rest &= rest - 1) f(first_lane(rest));
  }
}

// bar.sync and its relatives (barriers.cc).
struct NamedBarrier {
  uint32_t expected = 0;  // threads; 0: all of the CTA
  uint32_t arrived = 0;
  uint32_t generation = 0;
  uint32_t count = 0;  // bar.red of the current generation
  bool all = true, any = false;
  uint32_t result_count = 0;
  bool result_all = false, result_any = false;
};

struct TmemAllocator {
  std::array<uint16_t, 16> owner{};  // per 32 columns: number of the allocation, 0 if free
  uint16_t next = 1;
  bool relinquished = false;
  uint32_t requested = 0;  // cta_group::2: what this CTA's warp asks for, until the pair has agreed
  uint32_t granted = 0;    // column + 1
};

struct Cta {
  Cluster* cluster = nullptr;
  Dim3 id;
  uint32_t rank = 0;
  std::vector<uint8_t> shared;  // from offset 0, the reserved KiB included
  std::vector<uint32_t> tmem;   // lane-major, 128 x 512; never cleared
  TmemAllocator allocator;
  std::array<NamedBarrier, 16> barriers;
  std::vector<std::unique_ptr<Warp>> warps;
  uint32_t threads = 0;
  uint32_t live_threads = 0;
  bool launch_dependents = false;

  uint32_t* tmem_data();
  Cta& peer();  // the other CTA of the pair (itself if the cluster has one CTA)
};

struct AsyncOp {
  uint64_t due = 0;  // round of the scheduler
  size_t event = 0;  // of the trace
  std::function<void()> effect;
};

// Asynchronous work that completes in its order of issue.
using AsyncQueue = std::deque<AsyncOp>;

struct Cluster {
  Run* run = nullptr;
  uint64_t index = 0;  // in the grid of clusters
  Dim3 id;
  std::vector<std::unique_ptr<Cta>> ctas;
  uint32_t barrier_arrived = 0, barrier_generation = 0;
  uint32_t live_threads = 0;
  std::vector<AsyncQueue> queues;
  uint64_t round = 0;
  uint64_t progress = 0;       // counts events that others may wait for
  uint64_t turn_progress = 0;  // what it was when the cluster's last turn ended
  uint64_t idle_wakes = 0, last_progress = 0;
  std::vector<uint64_t> executed;  // per instruction of the program: warps
  std::vector<uint64_t> lanes;     //   and lanes
  uint64_t macs = 0;
  uint64_t asynchronous = 0;
  Traffic traffic;
  std::unique_ptr<Trace> trace;      // null unless asked for
  std::shared_ptr<Checker> checker;  // null unless strict

  Cluster(Run& run, uint64_t index);
  ~Cluster();
  Cta& cta(uint32_t rank, int lane);

  enum class State : uint8_t { finished, yielded, stuck };
  // Runs until every thread has exited, nothing can go on, or `rounds` rounds are over.
  State step(uint64_t rounds);
  // Starts asynchronous work; works of one queue complete in order. Tensor cores of CTA r: queue r.
  void start(size_t queue, std::function<void()> effect);
  std::string waiting_report();

 private:
  void fire(AsyncQueue& queue);
  bool fire_due();
  bool fire_next();
  State drain();
  bool wake_spinners();
};

inline size_t tensor_queue(uint32_t rank) { return rank; }
inline size_t copy_queue(const Cluster& c, uint32_t rank) { return c.ctas.size() + rank; }
inline size_t other_queue(const Cluster& c, uint32_t rank) { return 2 * c.ctas.size() + rank; }

struct LaunchConfig {
  Dim3 grid, block, cluster;
  uint32_t dynamic_shared = 0;
  std::vector<uint8_t> params;
  GlobalMemory* memory = nullptr;
  Schedule schedule = Schedule::fair;
  bool strict = false;
  uint64_t step_limit = uint64_t{4} << 30;  // warp instructions
  unsigned threads = 1;                     // host threads; clusters run side by side
  TraceSink* trace = nullptr;               // takes the events, if wanted
  bool watched = false;                     // a buffer has writers to be recorded: one host thread
  // Called now and then from the launching thread with finished clusters, clusters, warp instructions; may
  // throw.
  std::function<void(uint64_t, uint64_t, uint64_t)> poll;
};

struct LaunchResult {
  std::vector<std::pair<std::string, uint64_t>> opcodes;  // thread instructions per opcode
  uint64_t instructions = 0;                              // warp instructions
  uint64_t thread_instructions = 0;
  uint64_t macs = 0;
  uint64_t asynchronous = 0;  // asynchronous works completed
  Traffic traffic;
};

// What the clusters of one launch share.
struct Run {
  const Program* program = nullptr;
  LaunchConfig config;
  Dim3 clusters;  // grid in clusters
  uint32_t dynamic_base = 0;
  uint32_t shared_bytes = 0;
  uint64_t cluster_bytes = 0;  // host memory of one cluster, about
  std::atomic<uint64_t> next_cluster{0};
  std::atomic<uint64_t> steps{0};
  std::atomic<bool> stop{false};
};

// Throws the ExecutionError of a fault: with instruction, line, CTA and thread.
[[noreturn]] void report(Warp& w, const Instr& in, const Fault& fault);
// Executes one instruction stream slice of a warp; false if none of its groups can run.
bool run_warp(Warp& w, uint32_t slice);
// Removes lanes (they have exited) and completes barriers that waited for them only.
void exit_lanes(Warp& w, Mask lanes);

LaunchResult launch(const Program& program, LaunchConfig config);

}  // namespace tcgen05::vsm

// What a launch records on request: events of its warps, its asynchronous work and its mbarriers, and which
// instruction wrote each byte of a watched buffer last. Costs one test of a null pointer when off.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "vsm/machine.h"

namespace tcgen05::vsm {

struct MbarrierState;

inline constexpr uint64_t kNever = ~uint64_t{0};

using Notes = std::vector<std::pair<const char*, uint64_t>>;

struct Event {
  // An instruction, from its first try to its end (what lies between is waiting); asynchronous work, from its
  // issue to its effect; a change of an mbarrier.
  enum class Kind : uint8_t { instruction, effect, mbarrier };
  Kind kind = Kind::instruction;
  uint64_t start = 0, end = kNever;
  Dim3 cta;    // of the instruction
  Dim3 owner;  // of the mbarrier
  uint32_t warp = 0;
  uint32_t pc = 0;
  Mask lanes = 0;
  Notes notes;
};

// Where the events of all clusters come together; the caller of the launch owns it, so that it outlives
// errors.
class TraceSink {
 public:
  explicit TraceSink(size_t limit) : limit_(limit) {}
  void add(std::vector<Event> events);
  const std::vector<Event>& events() const { return events_; }
  size_t limit() const { return limit_; }
  bool truncated() const { return truncated_; }
  void cut() { truncated_ = true; }

 private:
  std::mutex mutex_;
  std::vector<Event> events_;
  size_t limit_;
  bool truncated_ = false;
};

// Last writer of a byte; pc + 1, 0 for none.
struct Writer {
  uint32_t instruction = 0;
  Dim3 cta;
  uint32_t thread = 0;
};

// The record of one cluster. Time counts warp instructions as if the warps of the cluster issued side by
// side: a round of the scheduler takes as long as the warp that executed most in it.
class Trace {
 public:
  Trace(const Program& program, TraceSink* sink);  // no sink: only writers are recorded
  ~Trace();

  // Around the handler of an instruction, which is the `done`th of this warp in this round.
  void begin(Warp& w, uint32_t pc, Mask m, uint32_t done);
  void finish(Flow flow);
  void next_round() { base_ = latest_; }

  // What the current instruction acts on; belongs to its events.
  void note(std::initializer_list<std::pair<const char*, uint64_t>> notes) { now_.notes = notes; }
  // Asynchronous work begins; `effect_begins` takes the number. Effects may run in the middle of an
  // instruction.
  size_t started();
  void effect_begins(size_t work);
  void effect_ends() { now_ = std::move(interrupted_); }
  void mbarrier(const Cta& owner, uint32_t address, const MbarrierState& now, bool completes);
  void wrote(const Region& region, uint64_t offset, uint32_t bytes, uint32_t thread);

 private:
  // An instruction that has begun to wait, and the program counter whose execution ends it.
  struct Waiting {
    const Warp* warp;
    uint32_t pc;
    bool passed;  // the instruction itself is not tried again
    size_t event;
  };

  size_t add(Event::Kind kind, uint64_t start);

  TraceSink* sink_;
  std::vector<uint8_t> wanted_;  // per instruction
  std::vector<Event> events_;
  std::vector<Waiting> waits_;
  // What acts now: an instruction, or, while an effect runs, the one that issued it.
  struct Actor {
    const Warp* warp = nullptr;
    Dim3 cta;
    uint32_t warp_index = 0, pc = 0;
    Mask lanes = 0;
    Notes notes;
    uint64_t now = 0;
  };
  struct Work {  // asynchronous work
    Actor issuer;
    size_t event;
  };
  Actor now_, interrupted_;
  std::vector<Work> works_;
  uint64_t base_ = 0, latest_ = 0;
};

}  // namespace tcgen05::vsm

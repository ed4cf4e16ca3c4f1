// One tcgen05.mma, as the hardware sees it: encoded descriptors, TMEM addresses, and the memories
// of the CTA (pair). The only implementation of the instruction; every executor calls it.
#pragma once

#include <cstdint>

#include "plan/opcode.h"

namespace tcgen05::model {

inline constexpr int kLanes = 128;
inline constexpr int kColumns = 512;

// The memories of one CTA. Shared addresses are offsets into `shared`; TMEM is lane-major:
// the cell (lane, column) is tmem[lane * kColumns + column].
struct CtaMemory {
  uint8_t* shared = nullptr;
  uint32_t shared_bytes = 0;
  uint32_t* tmem = nullptr;
};

// One issue. In a CTA pair both CTAs use the same descriptors and addresses, each in its own memories.
struct Mma {
  Opcode opcode;
  uint32_t idesc = 0;
  bool a_in_tmem = false;
  uint64_t a = 0;  // shared-memory descriptor, or TMEM address (lane << 16 | column)
  uint64_t b = 0;  // shared-memory descriptor
  uint32_t d = 0, sfa = 0, sfb = 0;
  bool enable_input_d = true;
  uint32_t disable_output_lane[8] = {};  // words 0-3 even CTA, 4-7 odd CTA (OQ9)
  uint64_t zero_column_mask = 0;         // .ws only
};

// Throws std::invalid_argument with the rule when the opcode, the instruction descriptor and the
// shared descriptors do not describe a legal instruction, or when it would leave a memory.
void check(const Mma& mma, const CtaMemory* ctas);

// Executes the issue on ctas[0 .. cta_group). Calls `check` first.
void execute(const Mma& mma, CtaMemory* ctas);

// Everything the issue touches, for checkers (a superset of nothing: exactly the bytes and cells).
class Footprint {
 public:
  virtual ~Footprint() = default;
  virtual void shared_read(int cta, uint32_t address, uint32_t bytes) = 0;
  virtual void tmem_read(int cta, int lane, int column, int columns) = 0;
  virtual void tmem_write(int cta, int lane, int column, int columns) = 0;
};
void footprint(const Mma& mma, const CtaMemory* ctas, Footprint& out);

}  // namespace tcgen05::model

// mbarrier objects (PTX ISA 9.7.13.15): 8 bytes of shared memory that hold the whole state.
#pragma once

#include "vsm/machine.h"

namespace tcgen05::vsm {

// bits 0-19 pending arrivals, 20-39 arrivals of a phase, 40-61 transaction count (signed: it may be negative
// before its expect_tx), 62 phase, 63 set in every initialised object.
struct MbarrierState {
  uint32_t pending = 0;
  uint32_t expected = 0;
  int32_t tx = 0;
  uint32_t phase = 0;
};

inline constexpr uint32_t kMbarrierMaxCount = (1u << 20) - 1;

uint64_t encode_mbarrier(const MbarrierState& s);
MbarrierState decode_mbarrier(uint64_t bits);

// The object at a shared address (rank in the upper bits); Fault if there is none.
MbarrierState load_mbarrier(Cluster& c, uint32_t address, int lane);
// Stores, first completing the phase if nothing is pending.
void store_mbarrier(Cluster& c, uint32_t address, MbarrierState s, int lane);

void mbarrier_arrive(Cluster& c, uint32_t address, uint32_t count, int lane);
// Positive: expect_tx; negative: complete_tx.
void mbarrier_add_tx(Cluster& c, uint32_t address, int64_t bytes, int lane);

}  // namespace tcgen05::vsm

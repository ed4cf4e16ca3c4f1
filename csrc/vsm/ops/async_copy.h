// What asynchronous copies share: where their operands lie, when they take effect, what waits for them.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <vector>

#include "vsm/decode.h"
#include "vsm/machine.h"

namespace tcgen05::vsm {

// [base + offset] of an instruction that has several addresses.
struct Place {
  Ref base = kNoRef;
  bool wide = false;
  Space space = Space::generic;
  uint64_t offset = 0;
};

Place take_place(Decoder& d, const Operand& x, Space named);
uint64_t address_of(const Warp& w, const Place& p, int lane);
// The same for a place in shared memory: rank and offset; `what` names it in messages.
uint32_t shared_address_of(const Warp& w, const Place& p, const char* what, int lane);
// Faults unless [address, address + bytes) is shared memory of a CTA of the cluster.
void check_shared(Warp& w, uint32_t address, uint64_t bytes, uint32_t align, const char* what, int lane);

inline uint8_t* shared_bytes(Cluster& c, uint32_t address) {
  return c.ctas[address >> kRankShift]->shared.data() + (address & kSharedOffsetMask);
}

// Starts work that takes effect late, in its order of issue in the queue. A Fault that it throws is reported
// with this instruction.
void start_async(Warp& w, const Instr& in, int lane, size_t queue, std::function<void()> effect);
// The same in the queue of the CTA's copies.
void start_copy(Warp& w, const Instr& in, int lane, std::function<void()> effect);

// Counts a copy, once read and `times` written, and notes it in the trace.
void note_copy(Cluster& c, Traffic::Where from, Traffic::Where to, uint64_t bytes, uint64_t times,
               uint32_t shared, uint32_t barrier);

// Copies of one lane that are counted in groups: cp.async, or bulk copies with .bulk_group.
struct CopyGroups {
  uint64_t issued = 0;
  uint64_t read = 0;  // sources that have been read
  uint64_t done = 0;
  std::deque<uint64_t> ends;  // per committed group: `issued` when it was committed

  void commit() {
    while (!ends.empty() && ends.front() <= done) ends.pop_front();
    ends.push_back(issued);
  }
  // True if at most `pending` of the newest groups are not complete (`only_read`: not read).
  bool reached(uint64_t pending, bool only_read) const {
    return ends.size() <= pending || (only_read ? read : done) >= ends[ends.size() - 1 - pending];
  }
};

struct Copies {
  std::array<CopyGroups, 32> plain, bulk;
};

Copies& copies_of(Warp& w);

// .commit_group and .wait_group of `which` groups.
void decode_commit_group(Decoder& d, bool bulk);
void decode_wait_group(Decoder& d, bool bulk);

// mbarriers that a copy into each of `ctas` credits: the object at the same offset in each of them, or, with
// cta_group::2, in the member of its pair whose parity is that of the CTA named (ptx_contract 16).
std::vector<uint32_t> multicast_barriers(uint32_t barrier, const std::vector<uint32_t>& ctas, int cta_group);
// Ranks in a mask of CTAs; Fault if one is not in the cluster.
std::vector<uint32_t> ranks_of(const Warp& w, uint32_t mask, int lane);

}  // namespace tcgen05::vsm

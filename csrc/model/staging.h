// Arrays into and out of the model's memories by their placements.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace tcgen05::model {

// The entries of one array as runs: entry `entry + t` (t < count) is `width` bits at bit `bit + t * step`
// of a CTA's shared memory, or of its lane-major TMEM. Bits that no entry owns are left alone.
class StagingTable {
 public:
  StagingTable() = default;
  explicit StagingTable(const Placement& placement);

  void store(const uint8_t* array, uint8_t* memory) const;
  void load(const uint8_t* memory, uint8_t* array) const;  // items of 2 or 4 whole bytes only

 private:
  struct Run {
    uint32_t entry, count, bit;
  };
  void append(uint32_t entry, uint32_t count, uint32_t bit);

  uint32_t width_ = 8, step_ = 8, item_bytes_ = 1;
  std::vector<Run> runs_;
};

}  // namespace tcgen05::model

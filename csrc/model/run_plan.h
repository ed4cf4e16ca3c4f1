// One batch element of a Plan on the functional model.
#pragma once

#include <cstdint>
#include <vector>

#include "model/instruction.h"
#include "model/staging.h"
#include "plan/plan.h"

namespace tcgen05::model {

// The arrays of one batch element, per CTA of the pair (index 0 alone with cta_group::1): row-major over the
// axes of their placements. d_out may be d_in; what the instructions do not write comes back as it was.
struct Operands {
  const uint8_t* d_in[2] = {};
  uint8_t* d_out[2] = {};
  const uint8_t* a[2] = {};
  const uint8_t* b[2] = {};
  const uint8_t* sfa[2] = {};  // block scaled only
  const uint8_t* sfb[2] = {};
  bool accum = false;                             // concerns the first K issue of each tile
  bool pred = true;                               // false: nothing is issued
  const uint32_t* disable_output_lane = nullptr;  // 4 words per CTA, or none
  uint64_t zero_column_mask = 0;
};

// What all batch elements share: staging tables, issues checked. Immutable, so threads may share it.
// Throws std::invalid_argument when an issue is illegal or leaves the plan's allocations.
class PreparedPlan {
 public:
  explicit PreparedPlan(Plan plan);

  const Plan& plan() const { return plan_; }

 private:
  friend class Workspace;
  Plan plan_;
  StagingTable d_, a_, b_, sfa_, sfb_;
};

// The memories of one CTA (pair); one per thread. They start as 0xFF, so that what an instruction reads
// by mistake shows.
class Workspace {
 public:
  explicit Workspace(const PreparedPlan& prepared);  // `prepared` must outlive it

  // Throws std::invalid_argument when the zero-column mask is illegal.
  void run(const Operands& operands);

 private:
  void stage(const Operands& operands);

  const PreparedPlan& prepared_;
  std::vector<uint8_t> shared_[2];
  std::vector<uint32_t> tmem_[2];
  CtaMemory memory_[2];
};

// The whole of it for one batch element.
void run_plan(const Plan& plan, const Operands& operands);

}  // namespace tcgen05::model

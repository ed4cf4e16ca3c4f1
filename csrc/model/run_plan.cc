#include "model/run_plan.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "model/form.h"

namespace tcgen05::model {
namespace {

// Scale-factor ids stand in bits 30-31 of the plan's scale addresses; each issue inserts them into the
// instruction descriptor: SFA at bits 29-30, SFB at bits 4-5 (ptx_contract 4.2, 4.3).
uint32_t with_scale_ids(uint32_t idesc, uint32_t sfa, uint32_t sfb) {
  return idesc | (sfa >> 30) << 29 | (sfb >> 30) << 4;
}

Mma issue(const Plan& plan, int64_t m, int64_t n, int64_t k) {
  const size_t mk = static_cast<size_t>(m * plan.k_repeat + k),
               nk = static_cast<size_t>(n * plan.k_repeat + k);
  Mma mma;
  mma.opcode = plan.opcode;
  mma.idesc = plan.idesc;
  mma.a_in_tmem = plan.a_in_tmem;
  // The operand area starts at shared address 0 and the TMEM allocation at column 0: starts are complete.
  mma.a = plan.a_start[mk];
  mma.b = plan.b_start[nk];
  mma.d = plan.d_start[static_cast<size_t>(m * plan.n_repeat + n)];
  if (plan.opcode.block_scaled()) {
    mma.sfa = plan.sfa_start[mk];
    mma.sfb = plan.sfb_start[nk];
    mma.idesc = with_scale_ids(plan.idesc, mma.sfa, mma.sfb);
  }
  return mma;
}

void require_columns(const char* name, uint32_t address, int columns, const Placement& place) {
  const int64_t column = address & 0xFFFF;
  if (column >= place.base && column + columns <= place.base + place.size) return;
  throw std::invalid_argument(std::string("plan attribute ") + name + ": a tile takes columns " +
                              std::to_string(column) + " to " + std::to_string(column + columns - 1) +
                              ", its allocation is " + std::to_string(place.base) + " to " +
                              std::to_string(place.base + place.size - 1));
}

// Legal, within the memories, and D within its own allocation, so that no operand changes on the way.
void check_issue(const Plan& plan, const Mma& mma, const CtaMemory* ctas) {
  check(mma, ctas);
  const Form form = resolve(mma);
  require_columns("d_starts", mma.d, form.columns(), plan.d);
  if (mma.a_in_tmem) require_columns("a_starts", static_cast<uint32_t>(mma.a), kStepColumns, plan.a);
  if (!plan.opcode.block_scaled()) return;
  require_columns("sfa_starts", mma.sfa, (form.datapath.rows + 31) / 32, plan.sfa);
  require_columns("sfb_starts", mma.sfb, (form.n + 31) / 32, plan.sfb);
}

void check_issues(const Plan& plan) {
  CtaMemory ctas[2];
  for (CtaMemory& cta : ctas) cta.shared_bytes = static_cast<uint32_t>(plan.shared_bytes);
  for (int64_t m = 0; m < plan.m_repeat; ++m) {
    for (int64_t n = 0; n < plan.n_repeat; ++n) {
      for (int64_t k = 0; k < plan.k_repeat; ++k) check_issue(plan, issue(plan, m, n, k), ctas);
    }
  }
}

}  // namespace

PreparedPlan::PreparedPlan(Plan plan) : plan_(std::move(plan)) {
  check_issues(plan_);
  d_ = StagingTable(plan_.d);
  a_ = StagingTable(plan_.a);
  b_ = StagingTable(plan_.b);
  if (plan_.opcode.block_scaled()) {
    sfa_ = StagingTable(plan_.sfa);
    sfb_ = StagingTable(plan_.sfb);
  }
}

Workspace::Workspace(const PreparedPlan& prepared) : prepared_(prepared) {
  for (int cta = 0; cta < prepared.plan().opcode.cta_group; ++cta) {
    shared_[cta].assign(static_cast<size_t>(prepared.plan().shared_bytes), 0xFF);
    tmem_[cta].assign(size_t{kLanes} * kColumns, 0xFFFFFFFFu);
    memory_[cta] = {shared_[cta].data(), static_cast<uint32_t>(shared_[cta].size()), tmem_[cta].data()};
  }
}

void Workspace::stage(const Operands& operands) {
  const Plan& plan = prepared_.plan();
  for (int cta = 0; cta < plan.opcode.cta_group; ++cta) {
    uint8_t* tmem = reinterpret_cast<uint8_t*>(memory_[cta].tmem);
    prepared_.d_.store(operands.d_in[cta], tmem);
    prepared_.a_.store(operands.a[cta], plan.a_in_tmem ? tmem : memory_[cta].shared);
    prepared_.b_.store(operands.b[cta], memory_[cta].shared);
    if (!plan.opcode.block_scaled()) continue;
    prepared_.sfa_.store(operands.sfa[cta], tmem);
    prepared_.sfb_.store(operands.sfb[cta], tmem);
  }
}

void Workspace::run(const Operands& operands) {
  const Plan& plan = prepared_.plan();
  if (!operands.pred) {
    const size_t bytes = static_cast<size_t>(plan.d.elements() * plan.d.item_bytes);
    for (int cta = 0; cta < plan.opcode.cta_group; ++cta) {
      if (operands.d_out[cta] != operands.d_in[cta])
        std::memcpy(operands.d_out[cta], operands.d_in[cta], bytes);
    }
    return;
  }
  stage(operands);
  for (int64_t m = 0; m < plan.m_repeat; ++m) {
    for (int64_t n = 0; n < plan.n_repeat; ++n) {
      for (int64_t k = 0; k < plan.k_repeat; ++k) {
        Mma mma = issue(plan, m, n, k);
        mma.enable_input_d = k > 0 || operands.accum;
        mma.zero_column_mask = operands.zero_column_mask;
        if (operands.disable_output_lane != nullptr) {
          std::copy_n(operands.disable_output_lane, 4 * plan.opcode.cta_group, mma.disable_output_lane);
        }
        execute(mma, memory_);
      }
    }
  }
  for (int cta = 0; cta < plan.opcode.cta_group; ++cta) {
    prepared_.d_.load(reinterpret_cast<const uint8_t*>(memory_[cta].tmem), operands.d_out[cta]);
  }
}

void run_plan(const Plan& plan, const Operands& operands) {
  const PreparedPlan prepared(plan);
  Workspace(prepared).run(operands);
}

}  // namespace tcgen05::model

#include "model/instruction.h"

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

#include "model/form.h"
#include "model/shared_walk.h"
#include "model/tile.h"

namespace tcgen05::model {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

// A TMEM address without its lane rules: lane in bits 16-31, column in bits 0-15.
struct Address {
  int lane, column;
};

Address tmem_address(uint32_t word) {
  return {static_cast<int>(word >> 16), static_cast<int>(word & 0xFFFF)};
}

// OQ13: bits 30-31 of a scale address are masked; the id comes from the instruction descriptor.
Address scale_address(uint32_t word) { return tmem_address(word & 0x3FFFFFFF); }

// Where the scales of row r (of A, or column of B) lie for the lanes of one quarter of the datapath:
// each quarter reads its own copy of the four (ptx_contract 8.1).
// OQ4: with cta_group::2 and M = 128 the document's reading is taken (unverified): SFB holds all N
// columns in four equal copies, as in every other form.
uint32_t scale_cell(int row, int quarter, int base_column) {
  return static_cast<uint32_t>((32 * quarter + row % 32) * kColumns + base_column + row / 32);
}

// The address rules of one issue, and its walks.
struct Issue {
  Form form;
  Address d{}, a{}, sfa{}, sfb{};
  uint32_t a_chunks[kMaxChunks], b_chunks[kMaxChunks];
  int a_count = 0, b_count = 0;
};

int element_bytes(const Operand& operand) {
  return operand.container == Container::plain32 ? 4 : operand.container == Container::plain16 ? 2 : 1;
}

void check_columns(const char* name, int column, int columns) {
  if (column + columns <= kColumns) return;
  refuse(std::string(name) + " address: columns " + std::to_string(column) + " to " +
         std::to_string(column + columns - 1) + " leave TMEM, which has " + std::to_string(kColumns));
}

void check_lane(const char* name, int lane, bool upper_half_allowed) {
  if (lane == 0 || (upper_half_allowed && lane == 16)) return;
  refuse(std::string(name) + " address: lane " + std::to_string(lane) +
         ", allowed for this layout: " + (upper_half_allowed ? "0, 16" : "0"));
}

void check_chunks(const char* name, const uint32_t* chunks, int count, const CtaMemory& cta) {
  for (int i = 0; i < count; ++i) {
    if (uint64_t{chunks[i]} + kChunk <= cta.shared_bytes) continue;
    refuse(std::string(name) + " descriptor: reads shared bytes " + std::to_string(chunks[i]) + " to " +
           std::to_string(chunks[i] + kChunk - 1) + " of " + std::to_string(cta.shared_bytes));
  }
}

void prepare(const Mma& mma, const CtaMemory* ctas, Issue& issue) {
  issue.form = resolve(mma);
  const Form& form = issue.form;
  const bool split = form.datapath.letter == 'F';
  issue.d = tmem_address(mma.d);
  check_lane("d", issue.d.lane, split);
  check_columns("d", issue.d.column, form.columns());
  if (mma.a_in_tmem) {
    if (mma.a >> 32 != 0) refuse("a address: " + std::to_string(mma.a) + " has more than 32 bits");
    issue.a = tmem_address(static_cast<uint32_t>(mma.a));
    check_lane("a", issue.a.lane, split);
    if (issue.a.lane != issue.d.lane) {
      // OQ3: A in TMEM lies in the lanes of D.
      refuse("a address: lane " + std::to_string(issue.a.lane) + " differs from d's lane " +
             std::to_string(issue.d.lane));
    }
    check_columns("a", issue.a.column, kStepColumns);
  } else {
    issue.a_count =
        walk(form.a.shared, form.a.mn_major, form.datapath.rows, element_bytes(form.a), issue.a_chunks);
  }
  issue.b_count = walk(form.b.shared, form.b.mn_major, form.b_rows(), element_bytes(form.b), issue.b_chunks);
  for (int cta = 0; cta < form.cta_group; ++cta) {
    check_chunks("a", issue.a_chunks, issue.a_count, ctas[cta]);
    check_chunks("b", issue.b_chunks, issue.b_count, ctas[cta]);
  }
  if (mma.opcode.block_scaled()) {
    issue.sfa = scale_address(mma.sfa);
    issue.sfb = scale_address(mma.sfb);
    check_lane("sfa", issue.sfa.lane, false);
    check_lane("sfb", issue.sfb.lane, false);
    check_columns("sfa", issue.sfa.column, (form.datapath.rows + 31) / 32);
    check_columns("sfb", issue.sfb.column, (form.n + 31) / 32);
  }
}

// Brings shared chunks into rows.
void gather(const Operand& operand, int rows, const uint32_t* chunks, const uint8_t* shared,
            uint8_t (*out)[kStepBytes]) {
  if (!operand.mn_major) {
    for (int r = 0; r < rows; ++r) {
      std::memcpy(out[r], shared + chunks[2 * r], kChunk);
      std::memcpy(out[r] + kChunk, shared + chunks[2 * r + 1], kChunk);
    }
    return;
  }
  const int bytes = element_bytes(operand), per_chunk = kChunk / bytes, pieces = rows / per_chunk;
  for (int k = 0; k < kStepBytes / bytes; ++k) {
    for (int p = 0; p < pieces; ++p) {
      const uint8_t* source = shared + *chunks++;
      for (int t = 0; t < per_chunk; ++t) {
        std::memcpy(out[p * per_chunk + t] + k * bytes, source + t * bytes, static_cast<size_t>(bytes));
      }
    }
  }
}

bool lane_enabled(const Mma& mma, int cta, int lane) {
  // OQ9: words 0-3 belong to the even CTA.
  return !((mma.disable_output_lane[4 * cta + lane / 32] >> (lane % 32)) & 1);
}

struct Scratch {
  Panel a, b;
  uint8_t sfa[kMaxRows][4], sfb[kMaxRows][4];
};

void read_scales(const uint32_t* tmem, int base_column, int id, int vec, int begin, int end, int quarter,
                 uint8_t (*out)[4]) {
  for (int row = begin; row < end; ++row) {
    const uint32_t word = tmem[scale_cell(row, quarter, base_column)];
    for (int v = 0; v < vec; ++v) out[row][v] = static_cast<uint8_t>(word >> (8 * (id + v)));
  }
}

// One bank of D's columns on one CTA.
void execute_bank(const Mma& mma, const Issue& issue, int cta, int bank, const CtaMemory& memory,
                  Scratch& scratch) {
  const Form& form = issue.form;
  const Datapath& path = form.datapath;
  uint32_t* d[kMaxRows];
  const int first_lane = issue.d.lane + bank * path.lane_step;
  for (int row = 0; row < path.rows; ++row) {
    const int lane = first_lane + path.lane(row);
    d[row] = lane_enabled(mma, cta, lane) ? memory.tmem + lane * kColumns + issue.d.column : nullptr;
    if (mma.a_in_tmem) {
      std::memcpy(scratch.a.raw()[row], memory.tmem + lane * kColumns + issue.a.column, kStepBytes);
    }
  }
  if (mma.a_in_tmem || bank == 0) {
    scratch.a.build(form.a, form.arithmetic, form.arithmetic.negate_a, path.rows, path.rows);
  }
  TileJob job;
  job.arithmetic = &form.arithmetic;
  job.a = &scratch.a;
  job.b = &scratch.b;
  job.bank = bank;
  job.bank_columns = form.columns();
  job.d = d;
  job.enable_input_d = mma.enable_input_d;
  job.row_end = path.rows;
  if (!mma.opcode.block_scaled()) {
    multiply(job);
    return;
  }
  const int vec = mma.opcode.scale_vec;
  job.sfa = scratch.sfa;
  job.sfb = scratch.sfb;
  // Block-scaled layouts (A, B, D) have 32 rows per quarter.
  for (int row = 0; row < path.rows; row += 32) {
    const int quarter = (first_lane + path.lane(row)) / 32;
    read_scales(memory.tmem, issue.sfa.column, form.sfa_id, vec, row, row + 32, quarter, scratch.sfa);
    read_scales(memory.tmem, issue.sfb.column, form.sfb_id, vec, 0, form.n, quarter, scratch.sfb);
    job.row_begin = row;
    job.row_end = row + 32;
    multiply(job);
  }
}

void zero_columns(const Form& form, uint8_t (*b)[kStepBytes]) {
  if (!form.zero_columns.enabled) return;
  for (int column = 0; column < form.n; ++column) {
    const int bank = column / form.columns();
    if (form.zero_columns.zeroed(bank, column % form.columns())) std::memset(b[column], 0, kStepBytes);
  }
}

// Payload bytes of a 16-byte chunk.
uint32_t payload(Container container) {
  return container == Container::fp6_padded ? 12 : container == Container::fp4_padded ? 8 : kChunk;
}

}  // namespace

void check(const Mma& mma, const CtaMemory* ctas) {
  Issue issue;
  prepare(mma, ctas, issue);
}

void execute(const Mma& mma, CtaMemory* ctas) {
  Issue issue;
  prepare(mma, ctas, issue);
  const Form& form = issue.form;
  // A few hundred KiB, kept from issue to issue.
  static thread_local const std::unique_ptr<Scratch> scratch(new Scratch);
  // The even CTA supplies rows 0 .. N/2-1 of B, the odd one the rest; both CTAs use all of B.
  for (int cta = 0; cta < form.cta_group; ++cta) {
    gather(form.b, form.b_rows(), issue.b_chunks, ctas[cta].shared, scratch->b.raw() + cta * form.b_rows());
  }
  zero_columns(form, scratch->b.raw());
  scratch->b.build(form.b, form.arithmetic, form.arithmetic.negate_b, form.n, form.columns());
  for (int cta = 0; cta < form.cta_group; ++cta) {
    if (!mma.a_in_tmem) {
      gather(form.a, form.datapath.rows, issue.a_chunks, ctas[cta].shared, scratch->a.raw());
    }
    for (int bank = 0; bank < form.datapath.banks; ++bank) {
      execute_bank(mma, issue, cta, bank, ctas[cta], *scratch);
    }
  }
}

void footprint(const Mma& mma, const CtaMemory* ctas, Footprint& out) {
  Issue issue;
  prepare(mma, ctas, issue);
  const Form& form = issue.form;
  const Datapath& path = form.datapath;
  const bool scaled = mma.opcode.block_scaled();
  for (int cta = 0; cta < form.cta_group; ++cta) {
    for (int i = 0; i < issue.a_count; ++i)
      out.shared_read(cta, issue.a_chunks[i], payload(form.a.container));
    for (int i = 0; i < issue.b_count; ++i)
      out.shared_read(cta, issue.b_chunks[i], payload(form.b.container));
    for (int bank = 0; bank < path.banks; ++bank) {
      const int first_lane = issue.d.lane + bank * path.lane_step;
      for (int row = 0; row < path.rows; ++row) {
        const int lane = first_lane + path.lane(row);
        if (mma.a_in_tmem) out.tmem_read(cta, lane, issue.a.column, kStepColumns);
        if (scaled) out.tmem_read(cta, 32 * (lane / 32) + row % 32, issue.sfa.column + row / 32, 1);
        if (scaled && row % 32 == 0) {
          for (int n = 0; n < form.n; ++n) {
            out.tmem_read(cta, 32 * (lane / 32) + n % 32, issue.sfb.column + n / 32, 1);
          }
        }
        if (!lane_enabled(mma, cta, lane)) continue;
        if (mma.enable_input_d) out.tmem_read(cta, lane, issue.d.column, form.columns());
        out.tmem_write(cta, lane, issue.d.column, form.columns());
      }
    }
  }
}

}  // namespace tcgen05::model

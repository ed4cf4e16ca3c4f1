// Which bytes of a tensor a tensor copy moves, and where they lie in shared memory (PTX ISA 5.5.3-5.5.7).
#pragma once

#include <cstdint>
#include <vector>

#include "vsm/tensormap.h"

namespace tcgen05::vsm {

enum class BoxMode : uint8_t { tile, gather4, im2col, im2col_w, im2col_w128 };

struct BoxRequest {
  BoxMode mode = BoxMode::tile;
  bool store = false;
  // Per dimension, innermost first; gather4 and scatter4: the column, then four rows.
  int64_t coordinate[5] = {};
  // im2col: offsets in W, H, D; im2col::w: wHalo, wOffset.
  uint32_t info[3] = {};
};

// One row along dimension 0 (a slice of an interleaved tensor).
struct BoxRow {
  bool inside = false;   // in all dimensions but 0
  uint64_t address = 0;  // of the element with coordinate 0 in dimension 0
};

// A box resolved: its rows in the order of shared memory.
struct Box {
  TensorMap map;
  std::vector<BoxRow> rows;
  uint32_t row_bytes = 0;       // in global memory
  uint32_t first = 0, end = 0;  // bytes of a row that are inside dimension 0
  int64_t start = 0;            // byte of dimension 0 where a row starts; may be negative

  uint32_t bytes() const {
    return static_cast<uint32_t>(rows.size()) * row_bytes;
  }  // what an mbarrier is credited with
  uint32_t shared_bytes() const { return static_cast<uint32_t>(rows.size()) * map.row_pitch(); }
  uint64_t address(const BoxRow& r) const { return r.address + static_cast<uint64_t>(start); }
};

// Throws std::invalid_argument when map and request do not fit together.
Box resolve_box(const TensorMap& m, const BoxRequest& r);

// Bytes of one row as in global memory, to and from the shared memory `shared` of a CTA, for row `i` of a box
// at `offset` there. Padded element types leave their gaps alone.
void scatter_row(const Box& b, size_t i, const uint8_t* row, uint8_t* shared, uint32_t offset);
void gather_row(const Box& b, size_t i, uint8_t* row, const uint8_t* shared, uint32_t offset);

// What a load does to elements on their way, and what it puts where the tensor ends.
void convert_loaded(const TensorMap& m, uint8_t* data, uint32_t bytes);
void fill_outside(const TensorMap& m, uint8_t* data, uint32_t bytes);

}  // namespace tcgen05::vsm

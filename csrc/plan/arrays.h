// The arrays of one call: buffers checked against the Plan, with the strides of their prefix.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace tcgen05 {

// A dense row-major buffer as it arrives.
struct Buffer {
  void* data = nullptr;
  int64_t item_bytes = 1;
  std::vector<int64_t> dims;
};

// One array of the call: byte strides of the execution-group axis and of the batch axes (0 broadcasts).
struct Array {
  char* data = nullptr;
  int64_t bytes = 0;  // of the whole buffer
  int64_t group_stride = 0;
  std::vector<int64_t> batch_strides;

  // The share of CTA `cta` in the batch element at `index` (one coordinate per batch axis).
  char* at(int cta, const std::vector<int64_t>& index) const;
};

struct Arrays {
  std::vector<int64_t> batch;  // the batch's shape
  int64_t batch_size = 1;      // its elements
  Array d_in, d_out, a, b, sfa, sfb, accum, pred, mask;
  bool masked = false;  // lane mask (dense) or zero-column mask (.ws) given

  // Coordinates of the `n`-th batch element, row-major.
  std::vector<int64_t> coordinates(int64_t n) const;
};

// Whether a call with `arguments` arguments has a mask; throws std::invalid_argument for a wrong count.
bool has_mask(const Plan& plan, size_t arguments);

// Arguments in the custom call's order: d, a, b[, sfa, sfb], accum, pred[, mask]. Throws
// std::invalid_argument naming the argument whose rank, sizes or item size disagree with the plan.
Arrays bind_arrays(const Plan& plan, const std::vector<Buffer>& arguments, const Buffer& result);

}  // namespace tcgen05

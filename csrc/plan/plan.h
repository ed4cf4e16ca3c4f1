// A Plan: one `mma` call after the contract has checked it, and all that an executor gets.
// Every number arrives in attributes of a custom call, so `decode` trusts none of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan/opcode.h"

namespace tcgen05 {

enum class Storage : int64_t { shared = 0, tmem = 1 };

// How an element's code becomes bits of the storage.
//   plain  the code itself, `bits` wide.
//   fp6    kinds f8f6f4 and mxf8f6f4: 16 codes packed into 12 bytes, padded to 16 (shared memory);
//          bits 0-5 of a byte (TMEM).
//   fp4    same kinds: 16 codes packed into 8 bytes, padded to 16 (shared); bits 2-5 of a byte (TMEM).
enum class Packing : int64_t { plain = 0, fp6 = 1, fp4 = 2 };

// One digit of a row-major coordinate: it counts 0..extent-1 and moves the element by the strides.
// Shared memory: `first` in elements, `second` unused. TMEM: `first` in lanes, `second` in elements
// of `bits` along a lane.
struct Digit {
  int64_t extent = 1;
  int64_t first = 0;
  int64_t second = 0;
};

// One axis of the array: `size` entries, held by digits (outermost first) whose extents multiply
// to `size` or more (a bounded part of a padded tile).
struct Axis {
  int64_t size = 1;
  std::vector<Digit> digits;
};

// Where the elements of one array (row-major over `axes`, one CTA's share) lie in its storage.
// Shared memory: element offset x = origin_first + sum(digit * first), then
//   x ^= swizzle_shift >= 0 ? (x >> swizzle_shift) & swizzle_mask : (x & swizzle_mask) << -swizzle_shift
// and the byte address is base + x * bits / 8. TMEM: lane = origin_first + sum(digit * first), bit of
// the lane = 32 * base + (origin_second + sum(digit * second)) * bits; each replica coordinate adds
// its strides once more.
struct Placement {
  Storage storage = Storage::shared;
  Packing packing = Packing::plain;
  int64_t item_bytes = 1;  // bytes of one array entry: 1, 2 or 4
  int64_t bits = 8;        // bits of one element in the storage: 4, 8, 16 or 32
  int64_t base = 0;        // shared: byte address of the allocation; TMEM: its first column
  int64_t size = 0;        // shared: bytes allocated; TMEM: columns allocated
  int64_t origin_first = 0;
  int64_t origin_second = 0;
  int64_t swizzle_mask = 0;
  int64_t swizzle_shift = 0;
  std::vector<Axis> axes;
  std::vector<Digit> replicas;

  int64_t elements() const;  // product of the axes' sizes
};

// Issue (m, n, k) reads a_start[m*k_repeat+k], b_start[n*k_repeat+k], sfa_start[m*k_repeat+k],
// sfb_start[n*k_repeat+k] and d_start[m*n_repeat+n]; the order is m, n, k with k innermost.
// TMEM addresses are lane << 16 | column, relative to the allocation's first column; a scale address
// carries its scale-factor id in bits 30-31 (OQ13: masked before use). Shared descriptors are complete
// but for the address of the CTA's operand area (1024-byte aligned), which is added to bits 0-13.
struct Plan {
  Opcode opcode;
  std::string opcode_text;
  uint32_t idesc = 0;  // scale-factor ids 0: each issue inserts its own
  bool a_in_tmem = false;
  int64_t m_repeat = 1, n_repeat = 1, k_repeat = 1;
  int64_t shared_bytes = 0;  // operand area of one CTA
  int64_t tmem_columns = 0;  // used columns; an allocation rounds up to a power of two >= 32
  Placement d, a, b, sfa, sfb;
  std::vector<uint32_t> d_start, sfa_start, sfb_start;
  std::vector<uint64_t> a_start, b_start;  // a_start: TMEM addresses when a_in_tmem
};

// A list of int64 that somebody else owns.
struct Int64s {
  const int64_t* data = nullptr;
  size_t size = 0;
};

// The attributes of the custom call, as they arrive (`Plan.attributes` in plan.py). `*_place` is
// [storage, packing, item_bytes, bits, base, size, origin_first, origin_second, swizzle_mask,
//  swizzle_shift, axes, per axis: (size, digits, per digit: (extent, first, second)),
//  replicas, per replica: (extent, first, second)]; empty for sfa and sfb without block scaling.
struct PlanAttributes {
  std::string_view opcode;
  int64_t idesc = 0, shared_bytes = 0, tmem_columns = 0;
  Int64s repeats;  // M, N, K
  Int64s d_starts, a_starts, b_starts, sfa_starts, sfb_starts;
  Int64s d_place, a_place, b_place, sfa_place, sfb_place;
};

// Throws std::invalid_argument naming the attribute. What passes keeps every element of every placement
// within its allocation, allocations apart and within the budgets; the instructions are judged when executed.
Plan decode_plan(const PlanAttributes& attributes);

inline constexpr int64_t kSharedBudget = 226 * 1024;
inline constexpr int64_t kTmemColumns = 512;
inline constexpr int64_t kTmemLanes = 128;

}  // namespace tcgen05

// What a device kernel gets: one block of kernel parameters, written by launch/pack.cc and read by
// kernels/. Plain C++17, so that nvcc and the host compiler agree on every byte.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define TCGEN05_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define TCGEN05_HOST_DEVICE inline
#endif

namespace tcgen05::launch {

inline constexpr uint32_t kThreads = 128;      // one CTA: four warps, one for each quarter of the TMEM lanes
inline constexpr uint32_t kLanes = 128;        // TMEM lanes
inline constexpr uint32_t kColumnStep = 32;    // columns of one tcgen05.ld/st, and the smallest allocation
inline constexpr uint32_t kImagePadding = 16;  // bytes after each lane of the image: no bank conflicts
inline constexpr uint32_t kMaxSteps = 24;      // digits of a placement; no array within the budgets has more
inline constexpr uint32_t kMaxBatchAxes = 8;   // batch axes, once those that run together are merged
inline constexpr uint32_t kTableWords = 3072;  // start tables; any plan within the budgets needs fewer

// Index of an operand in the arrays of Params.
enum Operand : uint32_t { kD, kA, kB, kSfa, kSfb, kOperands };

// One digit of the walk over a source array, innermost first. `size` nonzero starts an axis: the
// running index gives index % size to it and keeps index / size. `extent` nonzero splits the digit
// off the axis coordinate; zero takes all that is left of it.
struct Step {
  uint32_t size;
  uint32_t extent;
  uint32_t lane;    // stride in TMEM lanes (modulo 2^32, so that it may be negative)
  uint32_t offset;  // stride in units of the copy
};

// How a chunk of the source becomes bytes of the storage. The unit of offsets is the byte, in `bits`
// the element.
enum class CopyMode : uint32_t {
  bytes1 = 0,
  bytes2 = 1,
  bytes4 = 2,
  bytes16 = 3,   // 16 bytes as they are
  pack_fp6 = 4,  // 16 codes into 12 bytes, padded to 16
  pack_fp4 = 5,  // 16 codes into 8 bytes, padded to 16
  nibbles = 6,   // 32 codes into 16 bytes
  bits = 7,      // one code, or-ed into cleared memory
};

// One array's way into (or, for D, out of) its storage. The source is dense and row-major, so chunk n
// of it is its n-th piece of equal size; only the destination is computed.
struct Copy {
  uint32_t chunks;  // pieces of the source
  uint32_t work;    // chunks times replicas: the replica digits are the outermost steps
  CopyMode mode;
  uint32_t source_bytes;  // bytes of one chunk of the source
  uint32_t keep;          // mask on the bits of each 32-bit word of codes ...
  uint32_t shift;         // ... and the left shift after it (codes in TMEM bytes)
  uint32_t block_bits;    // mode bits: bits of one element, within ...
  uint32_t block_log2;    // ... blocks of 128 bits that hold 2^block_log2 elements
  uint32_t origin_lane, origin_offset;
  uint32_t swizzle_mask;
  int32_t swizzle_shift;
  uint32_t base;  // added after the swizzle
  uint32_t steps;
  Step step[kMaxSteps];
};

// A global array: byte strides of the execution-group axis and of the merged batch axes (0 = broadcast).
struct Strided {
  uint8_t* address;  // in the device's memory; null: not given
  int64_t group_stride;
  int64_t batch_stride[kMaxBatchAxes];
};

struct Params {
  uint32_t batch;  // elements of the batch
  uint32_t batch_axes;
  uint32_t batch_size[kMaxBatchAxes];  // innermost first

  uint32_t idesc;
  uint32_t collector;  // use: 0 fill, 1 use, 2 lastuse, 3 discard; plus 4 * buffer with .ws
  uint32_t m_repeat, n_repeat, k_repeat;

  uint32_t shared_bytes;     // operand area
  uint32_t tmem_columns;     // allocated: a power of two
  uint32_t staged_columns;   // columns in use, in whole steps
  uint32_t d_first, d_last;  // columns of D, in whole steps
  uint32_t window_columns;   // columns of the image that fit in shared memory at a time
  uint32_t pitch;            // bytes from one lane of the image to the next

  uint32_t start[kOperands];  // where an operand's starts begin in `table`
  uint32_t in_tmem[kOperands];
  Copy copy[kOperands];  // without work when the call has no such operand

  Strided operand[kOperands];   // D as it was
  Strided result;               // D as it becomes
  Strided accum, pred, mask;    // mask: lane mask, or zero-column mask with .ws
  uint32_t table[kTableWords];  // A's and B's starts take two words each, low first
};

static_assert(sizeof(Params) <= 32764, "kernel parameters are limited to 32764 bytes");
static_assert(sizeof(Params) % 8 == 0 && alignof(Params) == 8, "one layout on host and device");

struct Place {
  uint32_t source;  // chunk of the source
  uint32_t lane;
  uint32_t offset;  // units of the copy
};

// Where unit of work n of a copy comes from and goes to.
TCGEN05_HOST_DEVICE Place locate(const Copy& copy, uint32_t n) {
  Place place{n % copy.chunks, copy.origin_lane, copy.origin_offset};
  uint32_t axis = 0;
#ifdef __CUDACC__
#pragma unroll 1
#endif
  for (uint32_t i = 0; i < copy.steps; ++i) {
    const Step& step = copy.step[i];
    if (step.size != 0) {
      axis = n % step.size;
      n /= step.size;
    }
    uint32_t digit = axis;
    if (step.extent != 0) {
      digit = axis % step.extent;
      axis /= step.extent;
    }
    place.lane += digit * step.lane;
    place.offset += digit * step.offset;
  }
  const uint32_t x = place.offset;
  place.offset ^= copy.swizzle_shift >= 0 ? (x >> copy.swizzle_shift) & copy.swizzle_mask
                                          : (x & copy.swizzle_mask) << -copy.swizzle_shift;
  place.offset += copy.base;
  return place;
}

}  // namespace tcgen05::launch

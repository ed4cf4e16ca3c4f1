// The kernel behind every entry: a persistent loop over the batch, one element per CTA (pair) at a time.
#pragma once

#include "kernels/issue.cuh"
#include "kernels/stage.cuh"

namespace tcgen05::kernels {

__shared__ uint64_t barrier_storage;
__shared__ uint32_t tmem_storage;

using launch::Params;
using launch::Strided;

// Where this CTA's share of one batch element begins; null when the array was not given.
__device__ __forceinline__ uint8_t* locate_array(const Params& p, const Strided& array, uint32_t element,
                                                 uint32_t rank) {
  int64_t offset = rank * array.group_stride;
#pragma unroll 1
  for (uint32_t axis = 0; axis < p.batch_axes; ++axis) {
    offset += static_cast<int64_t>(element % p.batch_size[axis]) * array.batch_stride[axis];
    element /= p.batch_size[axis];
  }
  return array.address == nullptr ? nullptr : array.address + offset;
}

// Fills TMEM, a window of the image at a time, then shared memory. D is always brought in, so that cells
// which the instruction leaves alone come back as they were.
__device__ __forceinline__ void stage(const Params& p, uint8_t* shared, uint32_t tmem, uint32_t element,
                                      uint32_t rank) {
  bool to_tmem = true;
#pragma unroll 1
  for (uint32_t first = 0; to_tmem; first += p.window_columns) {
    to_tmem = first < p.staged_columns;
    const uint32_t columns = min(p.window_columns, p.staged_columns - first);
    const Window window{shared, to_tmem ? p.pitch : 0, to_tmem ? first * 4 : 0,
                        to_tmem ? columns * 4 : p.shared_bytes};
    clear(shared, to_tmem ? launch::kLanes * p.pitch : p.shared_bytes);
    __syncthreads();
#pragma unroll 1
    for (uint32_t i = 0; i < launch::kOperands; ++i)
      if ((p.in_tmem[i] != 0) == to_tmem)
        copy_in(p.copy[i], locate_array(p, p.operand[i], element, rank), window);
    if (to_tmem) {
      __syncthreads();
      image_to_tmem(shared, p.pitch, tmem + first, columns);
      __syncthreads();
    }
  }
}

__device__ __forceinline__ void read_back(const Params& p, uint8_t* shared, uint32_t tmem, uint32_t element,
                                          uint32_t rank) {
#pragma unroll 1
  for (uint32_t first = p.d_first; first < p.d_last; first += p.window_columns) {
    const uint32_t columns = min(p.window_columns, p.d_last - first);
    tmem_to_image(shared, p.pitch, tmem + first, columns);
    __syncthreads();
    copy_out(p.copy[launch::kD], locate_array(p, p.result, element, rank),
             Window{shared, p.pitch, first * 4, columns * 4});
    __syncthreads();
  }
}

__device__ __forceinline__ uint64_t wide(const Params& p, uint32_t table, uint32_t index) {
  return static_cast<uint64_t>(p.table[table + 2 * index + 1]) << 32 | p.table[table + 2 * index];
}

// All issues of one batch element, by one thread: m, n, k with k innermost.
template <class Issue, int kGroup, bool kWs, bool kATmem, bool kScaled, bool kMasked>
__device__ __forceinline__ void issue_all(const Params& p, uint32_t shared, uint32_t tmem, uint32_t element) {
  const uint8_t* pred = locate_array(p, p.pred, element, 0);
  if (pred != nullptr && *pred == 0) return;
  const uint8_t* accum = locate_array(p, p.accum, element, 0);
  const uint32_t accumulate = accum != nullptr && *accum != 0;

  Mma mma{};
  if constexpr (kMasked) {
    const uint32_t* words = reinterpret_cast<const uint32_t*>(locate_array(p, p.mask, element, 0));
    if constexpr (kWs) {
      mma.zero_columns = static_cast<uint64_t>(words[1]) << 32 | words[0];
    } else {
#pragma unroll
      for (int i = 0; i < 4 * kGroup; ++i) mma.lanes[i] = words[i];
    }
  }
  const uint64_t area = (shared & 0x3ffff) >> 4;  // bits above are the CTA's rank in the cluster
  constexpr uint32_t kScaleAddress = 0x3fffffff;  // bits 30-31 hold the scale-factor id (OQ13)

#pragma unroll 1
  for (uint32_t m = 0; m < p.m_repeat; ++m) {
#pragma unroll 1
    for (uint32_t n = 0; n < p.n_repeat; ++n) {
      mma.d = tmem + p.table[p.start[launch::kD] + m * p.n_repeat + n];
#pragma unroll 1
      for (uint32_t k = 0; k < p.k_repeat; ++k) {
        const uint32_t mk = m * p.k_repeat + k, nk = n * p.k_repeat + k;
        mma.a = wide(p, p.start[launch::kA], mk) + (kATmem ? tmem : area);
        mma.b = wide(p, p.start[launch::kB], nk) + area;
        mma.idesc = p.idesc;
        mma.accumulate = k != 0 ? 1 : accumulate;
        if constexpr (kScaled) {
          const uint32_t sfa = p.table[p.start[launch::kSfa] + mk], sfb = p.table[p.start[launch::kSfb] + nk];
          mma.idesc |= sfa >> 30 << 29 | sfb >> 30 << 4;
          mma.sfa = tmem + (sfa & kScaleAddress);
          mma.sfb = tmem + (sfb & kScaleAddress);
        }
        Issue::issue(p.collector, mma);
      }
    }
  }
}

template <class Issue, int kGroup, bool kWs, bool kATmem, bool kScaled, bool kMasked>
__device__ __forceinline__ void run(const Params& p) {
  extern __shared__ __align__(1024) uint8_t shared[];  // operands, and the image of TMEM
  const uint32_t barrier = shared_address(&barrier_storage);
  const uint32_t rank = kGroup == 1 ? 0 : cluster_rank();
  const bool first_warp = threadIdx.x < 32;

  if (first_warp) tmem_alloc<kGroup>(shared_address(&tmem_storage), p.tmem_columns);
  if (threadIdx.x == 0) mbarrier_init(barrier, 1);
  tmem_fence_before();
  synchronize<kGroup>();
  tmem_fence_after();
  const uint32_t tmem = tmem_storage;

  uint32_t parity = 0;
#pragma unroll 1
  for (uint32_t element = blockIdx.x / kGroup; element < p.batch; element += gridDim.x / kGroup) {
    stage(p, shared, tmem, element, rank);
    fence_proxy_async();
    tmem_fence_before();
    synchronize<kGroup>();
    tmem_fence_after();
    if (first_warp && rank == 0 && elect()) {
      issue_all<Issue, kGroup, kWs, kATmem, kScaled, kMasked>(p, shared_address(shared), tmem, element);
      commit<kGroup>(barrier);
    }
    __syncwarp();
    mbarrier_wait(barrier, parity);
    parity ^= 1;
    tmem_fence_after();
    read_back(p, shared, tmem, element, rank);
  }

  tmem_fence_before();
  synchronize<kGroup>();
  tmem_fence_after();
  if (first_warp) tmem_dealloc<kGroup>(tmem, p.tmem_columns);
}

}  // namespace tcgen05::kernels

// Arrays into shared memory and tensor memory, and D back: runs the copies that launch/copy.cc planned.
//
// Tensor memory is reached through an image of it in shared memory, a window of columns at a time: copies
// write the image as they write operands, and each thread moves its own lane between image and TMEM.
// So a placement is only ever evaluated forwards, and global memory is always read and written in order.
#pragma once

#include "kernels/ptx.cuh"
#include "launch/params.h"

namespace tcgen05::kernels {

using launch::Copy;
using launch::CopyMode;
using launch::kThreads;
using launch::locate;
using launch::Place;

// Where a copy may write: lane rows `pitch` apart, in each the bytes first .. first + bytes - 1.
// Operands in shared memory are one row.
struct Window {
  uint8_t* memory;
  uint32_t pitch;
  uint32_t first;
  uint32_t bytes;
};

__device__ __forceinline__ uint4 load16(const uint8_t* p) { return *reinterpret_cast<const uint4*>(p); }

// Four 6-bit codes, one per byte, into 24 bits.
__device__ __forceinline__ uint32_t pack_fp6(uint32_t codes) {
  return (codes & 0x3f) | (codes >> 2 & 0xfc0) | (codes >> 4 & 0x3f000) | (codes >> 6 & 0xfc0000);
}

// Four 4-bit codes, one per byte, into 16 bits.
__device__ __forceinline__ uint32_t pack_fp4(uint32_t codes) {
  return (codes & 0xf) | (codes >> 4 & 0xf0) | (codes >> 8 & 0xf00) | (codes >> 12 & 0xf000);
}

__device__ __forceinline__ uint4 load_chunk16(const Copy& copy, const uint8_t* source) {
  uint4 v = load16(source);
  switch (copy.mode) {
    case CopyMode::pack_fp6: {
      const uint32_t x = pack_fp6(v.x), y = pack_fp6(v.y), z = pack_fp6(v.z), w = pack_fp6(v.w);
      return make_uint4(x | y << 24, y >> 8 | z << 16, z >> 16 | w << 8, 0);
    }
    case CopyMode::pack_fp4:
      return make_uint4(pack_fp4(v.x) | pack_fp4(v.y) << 16, pack_fp4(v.z) | pack_fp4(v.w) << 16, 0, 0);
    case CopyMode::nibbles: {
      const uint4 u = load16(source + 16);
      return make_uint4(pack_fp4(v.x) | pack_fp4(v.y) << 16, pack_fp4(v.z) | pack_fp4(v.w) << 16,
                        pack_fp4(u.x) | pack_fp4(u.y) << 16, pack_fp4(u.z) | pack_fp4(u.w) << 16);
    }
    default:
      return make_uint4((v.x & copy.keep) << copy.shift, (v.y & copy.keep) << copy.shift,
                        (v.z & copy.keep) << copy.shift, (v.w & copy.keep) << copy.shift);
  }
}

// One code into memory that was cleared; neighbours in the same word belong to other threads.
__device__ __forceinline__ void or_bits(const Copy& copy, const Window& window, const Place& place,
                                        uint32_t code) {
  const uint32_t block = place.offset >> copy.block_log2;
  const uint32_t inside = place.offset & ((1u << copy.block_log2) - 1);
  const uint32_t bit = inside * copy.block_bits;
  const uint32_t byte = block * 16 + bit / 32 * 4 - window.first;
  if (byte >= window.bytes) return;
  code &= copy.keep & 0xff;
  uint32_t* word = reinterpret_cast<uint32_t*>(window.memory + place.lane * window.pitch + byte);
  atomicOr(word, code << bit % 32);
  if (bit % 32 + copy.block_bits > 32) atomicOr(word + 1, code >> (32 - bit % 32));
}

__device__ __forceinline__ void copy_in(const Copy& copy, const uint8_t* source, const Window& window) {
#pragma unroll 1
  for (uint32_t n = threadIdx.x; n < copy.work; n += kThreads) {
    const Place place = locate(copy, n);
    const uint8_t* from = source + static_cast<uint64_t>(place.source) * copy.source_bytes;
    if (copy.mode == CopyMode::bits) {
      or_bits(copy, window, place, *from);
      continue;
    }
    const uint32_t byte = place.offset - window.first;
    if (byte >= window.bytes) continue;
    uint8_t* to = window.memory + place.lane * window.pitch + byte;
    switch (copy.mode) {
      case CopyMode::bytes1:
        *to = static_cast<uint8_t>((*from & copy.keep) << copy.shift);
        break;
      case CopyMode::bytes2:
        *reinterpret_cast<uint16_t*>(to) = *reinterpret_cast<const uint16_t*>(from);
        break;
      case CopyMode::bytes4:
        *reinterpret_cast<uint32_t*>(to) = *reinterpret_cast<const uint32_t*>(from);
        break;
      default:
        *reinterpret_cast<uint4*>(to) = load_chunk16(copy, from);
    }
  }
}

// The way back, for D: modes bytes2, bytes4 and bytes16.
__device__ __forceinline__ void copy_out(const Copy& copy, uint8_t* target, const Window& window) {
#pragma unroll 1
  for (uint32_t n = threadIdx.x; n < copy.work; n += kThreads) {
    const Place place = locate(copy, n);
    const uint32_t byte = place.offset - window.first;
    if (byte >= window.bytes) continue;
    const uint8_t* from = window.memory + place.lane * window.pitch + byte;
    uint8_t* to = target + static_cast<uint64_t>(place.source) * copy.source_bytes;
    switch (copy.mode) {
      case CopyMode::bytes2:
        *reinterpret_cast<uint16_t*>(to) = *reinterpret_cast<const uint16_t*>(from);
        break;
      case CopyMode::bytes4:
        *reinterpret_cast<uint32_t*>(to) = *reinterpret_cast<const uint32_t*>(from);
        break;
      default:
        *reinterpret_cast<uint4*>(to) = load16(from);
    }
  }
}

// Clears `bytes` (a multiple of 16) of shared memory.
__device__ __forceinline__ void clear(uint8_t* memory, uint32_t bytes) {
#pragma unroll 1
  for (uint32_t i = threadIdx.x * 16; i < bytes; i += kThreads * 16)
    *reinterpret_cast<uint4*>(memory + i) = make_uint4(0, 0, 0, 0);
}

// The thread's lane of `columns` columns (whole steps), from the image to TMEM or back. `address` is the
// TMEM address of the first column, lane 0.
__device__ __forceinline__ void image_to_tmem(const uint8_t* image, uint32_t pitch, uint32_t address,
                                              uint32_t columns) {
  const uint8_t* row = image + threadIdx.x * pitch;
  address += (threadIdx.x & ~31u) << 16;
#pragma unroll 1
  for (uint32_t column = 0; column < columns; column += launch::kColumnStep) {
    uint32_t r[32];
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
      const uint4 v = load16(row + (column + i) * 4);
      r[i] = v.x, r[i + 1] = v.y, r[i + 2] = v.z, r[i + 3] = v.w;
    }
    tmem_store(address + column, r);
  }
  tmem_wait_store();
}

__device__ __forceinline__ void tmem_to_image(uint8_t* image, uint32_t pitch, uint32_t address,
                                              uint32_t columns) {
  uint8_t* row = image + threadIdx.x * pitch;
  address += (threadIdx.x & ~31u) << 16;
#pragma unroll 1
  for (uint32_t column = 0; column < columns; column += launch::kColumnStep) {
    uint32_t r[32];
    tmem_load(address + column, r);
#pragma unroll
    for (int i = 0; i < 32; i += 4)
      *reinterpret_cast<uint4*>(row + (column + i) * 4) = make_uint4(r[i], r[i + 1], r[i + 2], r[i + 3]);
  }
}

}  // namespace tcgen05::kernels

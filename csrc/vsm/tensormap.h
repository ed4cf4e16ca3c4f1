// Tensor maps (PTX ISA 5.5.8): the 128-byte object that tensor copies name. The chip's format is not public;
// this one is our own, every field writable by itself, as `tensormap.replace` wants.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "vsm/type.h"

namespace tcgen05::vsm {

// Numbered as `tensormap.replace.elemtype` numbers them (PTX ISA 9.7.9.28).
enum class Element : uint8_t {
  u8,
  u16,
  u32,
  s32,
  u64,
  s64,
  f16,
  f32,
  f32_ftz,
  f64,
  bf16,
  tf32,
  tf32_ftz,
  b4x16,
  b4x16_p64,
  b6x16_p32
};

struct ElementRow {
  std::string_view name;  // CUtensorMapDataType without its prefix
  int bits;               // of one element in global memory
  int shared_bits;        // in shared memory; more where 16 elements are padded to 16 bytes
  Type type;              // what reductions compute with; none if there are none
};

const ElementRow& row_of(Element e);

enum class MapMode : uint8_t { tiled, im2col, im2col_wide };

// Numbered as `tensormap.replace` numbers them.
enum class SwizzleMode : uint8_t { none, b32, b64, b128, b96 };
enum class SwizzleAtom : uint8_t { b16, b32, b32_flip8, b64 };

struct TensorMap {
  static constexpr uint32_t kMagic = 0x6d617054;

  uint32_t magic = 0;
  Element element = Element::u8;
  uint8_t rank = 1;
  uint8_t interleave = 0;  // 0 none, 1: slices of 16 bytes, 2: of 32 bytes
  SwizzleMode swizzle = SwizzleMode::none;
  uint64_t address = 0;
  uint64_t stride[4] = {};  // bytes, of dimensions 1 and up
  uint32_t dim[5] = {};     // elements (slices when interleaved); 0 stands for 2^32
  uint16_t box[5] = {};
  uint8_t element_stride[5] = {};
  SwizzleAtom atom = SwizzleAtom::b16;
  uint8_t fill = 0;  // what loads find outside: 0 zeros, 1 NaN
  MapMode mode = MapMode::tiled;
  int16_t lower[3] = {}, upper[3] = {};  // im2col: corners of the bounding box in W, H, D
  uint16_t channels = 0, pixels = 0;     // im2col: per pixel, per column
  uint8_t unused[26] = {};

  // Throws std::invalid_argument, naming the field, what it holds and what is allowed.
  void check() const;

  uint64_t size(int d) const { return dim[d] ? dim[d] : uint64_t{1} << 32; }
  uint32_t slice_bytes() const { return interleave ? 8u << interleave : 0; }
  // Bytes that one row of a box has along dimension 0 in global memory; a slice when interleaved.
  uint32_t row_bytes() const;
  // Bytes from row to row in shared memory: rows of a swizzled box fill a span of the swizzle.
  uint32_t row_pitch() const;
  // Elements of a box that are visited along dimension d.
  uint32_t visited(int d) const { return (box[d] + element_stride[d] - 1u) / element_stride[d]; }
};

static_assert(sizeof(TensorMap) == 128, "a tensor map has 128 bytes");

// The arguments of cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col; innermost dimension first.
struct TensorMapArguments {
  uint64_t address = 0;
  std::string dtype;              // CUtensorMapDataType without its prefix
  std::vector<uint64_t> gdim;     // elements
  std::vector<uint64_t> gstride;  // bytes, rank - 1 of them
  std::vector<uint32_t> box;      // not for im2col
  std::vector<uint32_t> estride;
  int interleave = 0, swizzle = 0,
      oob = 0;  // CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapFloatOOBfill
  bool im2col = false, wide = false;
  std::vector<int> lower, upper;
  uint32_t channels = 0, pixels = 0;
};

// Throws std::invalid_argument as TensorMap::check does.
TensorMap encode_tensor_map(const TensorMapArguments& a);

// Where byte `address` of an unswizzled box lies (PTX ISA 5.5.7); acts on absolute shared addresses.
inline uint32_t swizzled(const TensorMap& m, uint32_t address) {
  switch (m.swizzle) {
    case SwizzleMode::b32:
      return address ^ ((address >> 3) & 0x10);
    case SwizzleMode::b64:
      return address ^ ((address >> 3) & 0x30);
    case SwizzleMode::b128:
      break;
    default:
      return address;
  }
  switch (m.atom) {
    case SwizzleAtom::b16:
      return address ^ ((address >> 3) & 0x70);
    case SwizzleAtom::b64:
      return address ^ ((address >> 1) & 0x40);
    case SwizzleAtom::b32_flip8:
      address ^= (address >> 4) & 0x8;
      break;  // in every other 128-byte line
    default:
      break;
  }
  return address ^ ((address >> 2) & 0x60);
}

}  // namespace tcgen05::vsm

#include "vsm/ops/tensor_copy_box.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <string>

#include "vsm/memory.h"

namespace tcgen05::vsm {
namespace {

using Position = std::array<int64_t, 5>;

[[noreturn]] void wrong(const std::string& what) { throw std::invalid_argument(what); }

// The row whose coordinates in dimensions `from` and up are those of `p`.
BoxRow row_at(const TensorMap& m, const Position& p, int from) {
  BoxRow r{true, m.address};
  for (int d = from; d < m.rank; ++d) {
    r.inside = r.inside && p[static_cast<size_t>(d)] >= 0 &&
               static_cast<uint64_t>(p[static_cast<size_t>(d)]) < m.size(d);
    uint64_t stride = d ? m.stride[d - 1] : m.slice_bytes();
    r.address += static_cast<uint64_t>(p[static_cast<size_t>(d)]) * stride;
  }
  return r;
}

// Tiled mode. Interleaved tensors have slices for elements, and every slice is a row.
void tile_rows(Box& b, const BoxRequest& r) {
  const TensorMap& m = b.map;
  int from = m.interleave ? 0 : 1;
  size_t total = 1;
  for (int d = from; d < m.rank; ++d) {
    total *= m.visited(d);
    if (total * m.row_pitch() > kMaxShared)
      wrong("the box has more than the " + std::to_string(kMaxShared) + " bytes of a CTA's shared memory");
  }
  Position step{};
  b.rows.reserve(total);
  for (size_t n = 0; n < total; ++n) {
    Position p{};
    for (int d = from; d < m.rank; ++d)
      p[static_cast<size_t>(d)] = r.coordinate[d] + step[static_cast<size_t>(d)] * m.element_stride[d];
    b.rows.push_back(row_at(m, p, from));
    for (int d = from; d < m.rank && ++step[static_cast<size_t>(d)] == static_cast<int64_t>(m.visited(d));
         ++d)
      step[static_cast<size_t>(d)] = 0;
  }
}

void gather_rows(Box& b, const BoxRequest& r) {
  const TensorMap& m = b.map;
  if (m.rank != 2 || m.interleave || m.box[1] != 1)
    wrong(
        "gather4 and scatter4 need a tensor map of rank 2 without interleave whose box has one row; it has "
        "rank " +
        std::to_string(m.rank) + " and box[1] " + std::to_string(m.box[1]));
  for (int i = 1; i < 5; ++i) b.rows.push_back(row_at(m, {0, r.coordinate[i]}, 1));
}

// The walk of im2col over pixels: W, then H, then D inside the bounding box, then the next image.
class PixelWalk {
 public:
  PixelWalk(const TensorMap& m, const BoxRequest& r, int spatial, int64_t shift)
      : map_(m), spatial_(spatial) {
    for (int i = 0; i < spatial; ++i) {
      low_[i] = m.lower[i] + shift;
      high_[i] = static_cast<int64_t>(m.size(i + 1)) + m.upper[i] + shift;
    }
    for (int d = 0; d < m.rank; ++d) at[static_cast<size_t>(d)] = r.coordinate[d];
    at[1] += shift;
  }

  void check() const {
    for (int i = 0; i < spatial_; ++i)
      if (at[static_cast<size_t>(i + 1)] < low_[i] || at[static_cast<size_t>(i + 1)] >= high_[i])
        wrong("im2col starts at coordinate " + std::to_string(at[static_cast<size_t>(i + 1)]) +
              " of dimension " + std::to_string(i + 1) + ", outside the bounding box [" +
              std::to_string(low_[i]) + ", " + std::to_string(high_[i]) + ")");
  }

  void next() {
    for (int i = 0; i < spatial_; ++i) {
      size_t d = static_cast<size_t>(i + 1);
      at[d] += map_.element_stride[d];
      if (at[d] < high_[i]) return;
      at[d] = low_[i];
    }
    at[static_cast<size_t>(map_.rank - 1)] += map_.element_stride[map_.rank - 1];
  }

  Position at{};

 private:
  const TensorMap& map_;
  int spatial_;
  int64_t low_[3] = {}, high_[3] = {};
};

void im2col_rows(Box& b, const BoxRequest& r) {
  const TensorMap& m = b.map;
  int spatial = m.rank - 2;
  PixelWalk walk(m, r, spatial, 0);
  walk.check();
  uint32_t limit = m.rank == 3 ? 1u << 16 : m.rank == 4 ? 1u << 8 : 1u << 5;
  for (int i = 0; i < spatial; ++i)
    if (r.info[i] >= limit)
      wrong("im2col offset " + std::to_string(r.info[i]) + " is not below " + std::to_string(limit) +
            ", its limit for this rank");
  for (uint32_t n = 0; n < m.pixels; ++n, walk.next()) {
    Position p = walk.at;
    for (int i = 0; i < spatial; ++i) p[static_cast<size_t>(i + 1)] += r.info[i];
    b.rows.push_back(row_at(m, p, 1));
  }
}

// Main pixels first, then the halo pixels behind each quarter (w::128) or behind the last one; those of the
// quarters take turns.
void im2col_w_rows(Box& b, const BoxRequest& r) {
  const TensorMap& m = b.map;
  bool fixed = r.mode == BoxMode::im2col_w128;
  uint32_t halo = r.info[0], pixels = fixed ? 128 : m.pixels, parts = fixed ? 4 : 1;
  if (halo >= (fixed ? 32u : 512u) || r.info[1] >= 32)
    wrong("wHalo is " + std::to_string(halo) + " and wOffset " + std::to_string(r.info[1]) +
          ", allowed: below " + (fixed ? "32" : "512") + " and below 32");
  PixelWalk walk(m, r, 1, r.info[1]);
  b.rows.resize(pixels + parts * halo);
  for (uint32_t n = 0; n < pixels;) {
    b.rows[n] = row_at(m, walk.at, 1);
    walk.next();
    if (++n % (pixels / parts)) continue;
    PixelWalk beyond = walk;
    for (uint32_t h = 0; h < halo; ++h, beyond.next())
      b.rows[pixels + h * parts + n / (pixels / parts) - 1] = row_at(m, beyond.at, 1);
  }
}

void check_mode(const TensorMap& m, const BoxRequest& r) {
  MapMode want = r.mode == BoxMode::im2col     ? MapMode::im2col
                 : r.mode >= BoxMode::im2col_w ? MapMode::im2col_wide
                                               : MapMode::tiled;
  static constexpr const char* kNames[] = {"tiled", "im2col", "im2col::w"};
  if (m.mode != want)
    wrong(std::string("the instruction needs a tensor map of mode ") + kNames[static_cast<int>(want)] +
          ", the map's mode is " + kNames[static_cast<int>(m.mode)]);
  if (r.store && m.swizzle == SwizzleMode::b128 && m.atom == SwizzleAtom::b32_flip8)
    wrong("stores have no swizzle with 8-byte flip");
  if (r.store && m.element == Element::b4x16_p64) wrong("stores have no elements of 16U4_ALIGN16B");
}

// The part of a row that dimension 0 holds.
void clip(Box& b, const BoxRequest& r) {
  const TensorMap& m = b.map;
  b.row_bytes = m.row_bytes();
  b.end = b.row_bytes;
  if (m.interleave) return;
  int bits = row_of(m.element).bits;
  int64_t c = r.coordinate[0], grain = bits >= 8 ? 1 : m.element == Element::b4x16 ? 2 : 128;
  if (c % grain)
    wrong("coordinate 0 is " + std::to_string(c) + ", allowed: multiples of " + std::to_string(grain) +
          " for " + std::string(row_of(m.element).name));
  b.start = c * bits / 8;
  int64_t size = static_cast<int64_t>(m.size(0) * static_cast<uint64_t>(bits) / 8), row = b.row_bytes;
  b.first = static_cast<uint32_t>(std::clamp<int64_t>(-b.start, 0, row));
  b.end = static_cast<uint32_t>(std::clamp<int64_t>(size - b.start, b.first, row));
}

// Calls f(offset in the row as in global memory, shared offset, bytes) for the pieces of row i that stay
// together.
template <class F>
void pieces(const Box& b, size_t i, uint32_t offset, F&& f) {
  const TensorMap& m = b.map;
  const ElementRow& e = row_of(m.element);
  uint32_t at = offset + static_cast<uint32_t>(i) * m.row_pitch();
  if (e.bits != e.shared_bits) {  // 16 elements in the low bytes of 16
    uint32_t payload = static_cast<uint32_t>(2 * e.bits);
    for (uint32_t g = 0; g * payload < b.row_bytes; ++g) {
      uint32_t to = at + 16 * g;
      if (m.atom == SwizzleAtom::b32_flip8 && payload == 12) {
        f(g * payload, swizzled(m, to), 8u);
        f(g * payload + 8, swizzled(m, to + 8), 4u);
      } else {
        f(g * payload, swizzled(m, to), payload);
      }
    }
    return;
  }
  if (m.swizzle == SwizzleMode::none) return f(0u, at, b.row_bytes);
  uint32_t unit = m.atom == SwizzleAtom::b32_flip8 ? 8 : 16;
  for (uint32_t k = 0; k < b.row_bytes; k += unit) f(k, swizzled(m, at + k), unit);
}

}  // namespace

Box resolve_box(const TensorMap& m, const BoxRequest& r) {
  m.check();
  check_mode(m, r);
  Box b;
  b.map = m;
  clip(b, r);
  switch (r.mode) {
    case BoxMode::tile:
      tile_rows(b, r);
      break;
    case BoxMode::gather4:
      gather_rows(b, r);
      break;
    case BoxMode::im2col:
      im2col_rows(b, r);
      break;
    default:
      im2col_w_rows(b, r);
  }
  return b;
}

void scatter_row(const Box& b, size_t i, const uint8_t* row, uint8_t* shared, uint32_t offset) {
  pieces(b, i, offset, [&](uint32_t k, uint32_t at, uint32_t n) { std::memcpy(shared + at, row + k, n); });
}

void gather_row(const Box& b, size_t i, uint8_t* row, const uint8_t* shared, uint32_t offset) {
  pieces(b, i, offset, [&](uint32_t k, uint32_t at, uint32_t n) { std::memcpy(row + k, shared + at, n); });
}

void convert_loaded(const TensorMap& m, uint8_t* data, uint32_t bytes) {
  bool flush = m.element == Element::f32_ftz || m.element == Element::tf32_ftz;
  bool round = m.element == Element::tf32 || m.element == Element::tf32_ftz;
  if (!flush && !round) return;
  for (uint32_t k = 0; k < bytes; k += 4) {
    uint32_t v;
    std::memcpy(&v, data + k, 4);
    uint32_t magnitude = v & 0x7fffffff;
    if (flush && magnitude < 0x800000) v &= 0x80000000;
    // To the nearest tf32, ties away from zero; one NaN. One independent simulator says so; no text does.
    if (round)
      v = magnitude > 0x7f800000 ? 0x7fffe000 : magnitude == 0x7f800000 ? v : (v + 0x1000) & 0xffffe000;
    std::memcpy(data + k, &v, 4);
  }
}

void fill_outside(const TensorMap& m, uint8_t* data, uint32_t bytes) {
  if (!m.fill) {
    std::memset(data, 0, bytes);
    return;
  }
  // The bits of the OOB-NaN (0x7ff7 in every 16) come from one independent simulator; no text names them.
  for (uint32_t k = 0; k < bytes; ++k) data[k] = k % 2 ? 0x7f : 0xf7;
}

}  // namespace tcgen05::vsm

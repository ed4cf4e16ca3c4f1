#include "vsm/tensormap.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "vsm/memory.h"

namespace tcgen05::vsm {
namespace {

constexpr ElementRow kElements[] = {
    {"UINT8", 8, 8, Type::none},         {"UINT16", 16, 16, Type::none},
    {"UINT32", 32, 32, Type::u32},       {"INT32", 32, 32, Type::s32},
    {"UINT64", 64, 64, Type::u64},       {"INT64", 64, 64, Type::s64},
    {"FLOAT16", 16, 16, Type::f16},      {"FLOAT32", 32, 32, Type::f32},
    {"FLOAT32_FTZ", 32, 32, Type::f32},  {"FLOAT64", 64, 64, Type::f64},
    {"BFLOAT16", 16, 16, Type::bf16},    {"TFLOAT32", 32, 32, Type::f32},
    {"TFLOAT32_FTZ", 32, 32, Type::f32}, {"16U4_ALIGN8B", 4, 4, Type::none},
    {"16U4_ALIGN16B", 4, 8, Type::none}, {"16U6_ALIGN16B", 6, 8, Type::none},
};

// CUtensorMapSwizzle: 0 none, 1 32B, 2 64B, 3 128B, 4 128B atom 32B, 5 the same with 8B flip, 6 128B atom
// 64B.
struct SwizzleRow {
  SwizzleMode mode;
  SwizzleAtom atom;
};
constexpr SwizzleRow kSwizzles[] = {
    {SwizzleMode::none, SwizzleAtom::b16}, {SwizzleMode::b32, SwizzleAtom::b16},
    {SwizzleMode::b64, SwizzleAtom::b16},  {SwizzleMode::b128, SwizzleAtom::b16},
    {SwizzleMode::b128, SwizzleAtom::b32}, {SwizzleMode::b128, SwizzleAtom::b32_flip8},
    {SwizzleMode::b128, SwizzleAtom::b64},
};

constexpr uint32_t kSpans[] = {0, 32, 64, 128, 96};

[[noreturn]] void wrong(const std::string& field, const std::string& have, const std::string& allowed) {
  throw std::invalid_argument("tensor map: " + field + " is " + have + ", allowed: " + allowed);
}

void in_range(const std::string& field, int64_t value, int64_t least, int64_t most) {
  if (value < least || value > most)
    wrong(field, std::to_string(value), std::to_string(least) + " to " + std::to_string(most));
}

void multiple(const std::string& field, uint64_t value, uint64_t of) {
  if (value % of) wrong(field, std::to_string(value), "multiples of " + std::to_string(of));
}

std::string at(const char* field, int i) { return std::string(field) + "[" + std::to_string(i) + "]"; }

bool padded(Element e) { return row_of(e).bits != row_of(e).shared_bits; }

void check_swizzle(const TensorMap& m) {
  if (m.swizzle == SwizzleMode::b96)
    wrong("swizzle mode", "96B", "none, 32B, 64B, 128B (96B is not executed here)");
  if (m.swizzle != SwizzleMode::b128 && m.atom != SwizzleAtom::b16)
    wrong("swizzle atomicity", std::to_string(static_cast<int>(m.atom)),
          "0 (16B) unless the swizzle mode is 128B");
  if (m.interleave == 2 && m.swizzle != SwizzleMode::b32)
    wrong("swizzle mode", std::to_string(static_cast<int>(m.swizzle)), "1 (32B) with 32B interleave");
  if (m.interleave == 1 && m.swizzle != SwizzleMode::none)
    wrong("swizzle mode", std::to_string(static_cast<int>(m.swizzle)),
          "0 (none) with 16B interleave, whose swizzled layout is not known");
  if (padded(m.element) && m.swizzle != SwizzleMode::none && m.swizzle != SwizzleMode::b128)
    wrong("swizzle mode", std::to_string(static_cast<int>(m.swizzle)),
          "0 (none) or 3 (128B) with this element type");
  uint32_t span = kSpans[static_cast<int>(m.swizzle)];
  uint32_t inner = m.row_bytes() * static_cast<uint32_t>(row_of(m.element).shared_bits) /
                   static_cast<uint32_t>(row_of(m.element).bits);
  if (span && inner > span)
    wrong("box[0]", std::to_string(inner) + " bytes",
          "at most the " + std::to_string(span) + " bytes of the swizzle span");
}

void check_im2col(const TensorMap& m) {
  in_range("rank of an im2col tensor", m.rank, 3, 5);
  if (m.interleave)
    wrong("interleave", std::to_string(m.interleave),
          "0 with im2col (interleaved im2col is not executed here)");
  in_range("channels per pixel", m.channels, 1, 256);
  in_range("pixels per column", m.pixels, 1, 1024);
  multiple("channels per pixel in bytes", m.row_bytes(), 16);
  if (m.mode == MapMode::im2col_wide && (m.swizzle == SwizzleMode::none || m.swizzle == SwizzleMode::b32))
    wrong("swizzle mode", std::to_string(static_cast<int>(m.swizzle)), "64B or 128B with im2col::w");
  int spatial = m.mode == MapMode::im2col_wide ? 1 : m.rank - 2;
  int half = m.mode == MapMode::im2col_wide || m.rank == 3 ? 1 << 15 : m.rank == 4 ? 1 << 7 : 1 << 4;
  for (int i = 0; i < spatial; ++i) {
    in_range(at("lower corner", i), m.lower[i], -half, half - 1);
    in_range(at("upper corner", i), m.upper[i], -half, half - 1);
    if (m.lower[i] >= static_cast<int64_t>(m.size(i + 1)) + m.upper[i])
      wrong(at("lower corner", i), std::to_string(m.lower[i]), "corners that leave a bounding box");
  }
}

void check_dimensions(const TensorMap& m) {
  uint64_t grain = m.interleave == 2 || padded(m.element) ? 32 : 16;
  multiple("address", m.address, grain);
  for (int i = 0; i + 1 < m.rank; ++i) {
    multiple(at("gstride", i) + " in bytes", m.stride[i], grain);
    if (m.stride[i] >> 40) wrong(at("gstride", i), std::to_string(m.stride[i]), "below 2^40");
  }
  for (int i = 0; i < m.rank; ++i) {
    in_range(at("estride", i), m.element_stride[i], 1, 8);
    if (m.mode == MapMode::tiled) in_range(at("box", i), m.box[i], 1, 256);
  }
  if (!m.interleave && m.element_stride[0] != 1)
    wrong("estride[0]", std::to_string(m.element_stride[0]), "1 without interleave");
  if (m.mode == MapMode::tiled && !m.interleave) {
    if (padded(m.element)) {
      if (m.box[0] != 128) wrong("box[0]", std::to_string(m.box[0]), "128 with this element type");
    } else {
      multiple("box[0] in bits", uint64_t{m.box[0]} * static_cast<uint32_t>(row_of(m.element).bits), 128);
    }
  }
  if (row_of(m.element).bits == 4) multiple("gdim[0]", m.size(0), padded(m.element) ? 128 : 2);
  if (row_of(m.element).bits == 6) multiple("gdim[0]", m.size(0), 128);
}

}  // namespace

const ElementRow& row_of(Element e) { return kElements[static_cast<int>(e)]; }

uint32_t TensorMap::row_bytes() const {
  if (interleave) return slice_bytes();
  uint32_t n = mode == MapMode::tiled ? box[0] : channels;
  return n * static_cast<uint32_t>(row_of(element).bits) / 8;
}

uint32_t TensorMap::row_pitch() const {
  const ElementRow& e = row_of(element);
  uint32_t bytes = interleave
                       ? slice_bytes()
                       : row_bytes() * static_cast<uint32_t>(e.shared_bits) / static_cast<uint32_t>(e.bits);
  return std::max(bytes, kSpans[static_cast<int>(swizzle)]);
}

void TensorMap::check() const {
  if (magic != kMagic)
    throw std::invalid_argument("tensor map: the 128 bytes hold no tensor map that the host has encoded");
  in_range("element type", static_cast<int>(element), 0, static_cast<int>(std::size(kElements)) - 1);
  in_range("rank", rank, 1, 5);
  in_range("interleave", interleave, 0, 2);
  in_range("swizzle mode", static_cast<int>(swizzle), 0, 4);
  in_range("swizzle atomicity", static_cast<int>(atom), 0, 3);
  in_range("fill mode", fill, 0, 1);
  in_range("mode", static_cast<int>(mode), 0, 2);
  if (interleave) in_range("rank of an interleaved tensor", rank, 3, 5);
  if (interleave && row_of(element).bits < 8)
    wrong("interleave", std::to_string(interleave), "0 with elements below 8 bits");
  bool real = element >= Element::f16 && element <= Element::tf32_ftz;
  if (fill && !real) wrong("fill mode", "1 (NaN)", "0 (zeros) for elements that are not floating point");
  check_dimensions(*this);
  if (mode != MapMode::tiled) check_im2col(*this);
  check_swizzle(*this);
}

TensorMap encode_tensor_map(const TensorMapArguments& a) {
  TensorMap m;
  m.magic = TensorMap::kMagic;
  auto e = std::find_if(std::begin(kElements), std::end(kElements),
                        [&](const ElementRow& r) { return r.name == a.dtype; });
  if (e == std::end(kElements)) {
    std::string list;
    for (const ElementRow& r : kElements) list += (list.empty() ? "" : ", ") + std::string(r.name);
    wrong("dtype", "'" + a.dtype + "'", list);
  }
  m.element = static_cast<Element>(e - std::begin(kElements));
  size_t rank = a.gdim.size();
  in_range("rank", static_cast<int64_t>(rank), 1, 5);
  if (a.im2col) in_range("rank of an im2col tensor", static_cast<int64_t>(rank), 3, 5);
  auto length = [&](const char* field, size_t have, size_t want) {
    if (have != want)
      wrong(std::string("length of ") + field, std::to_string(have),
            std::to_string(want) + " for rank " + std::to_string(rank));
  };
  length("gstride", a.gstride.size(), rank - 1);
  length("box", a.box.size(), a.im2col ? a.box.size() : rank);
  length("estride", a.estride.size(), rank);
  m.rank = static_cast<uint8_t>(rank);
  m.address = a.address;
  for (size_t i = 0; i < rank; ++i) {
    in_range(at("gdim", static_cast<int>(i)), static_cast<int64_t>(a.gdim[i]), 1, int64_t{1} << 32);
    m.dim[i] = static_cast<uint32_t>(a.gdim[i]);
    in_range(at("estride", static_cast<int>(i)), a.estride[i], 1, 8);
    m.element_stride[i] =
        i == 0 && !a.interleave ? 1 : static_cast<uint8_t>(a.estride[i]);  // ignored without interleave
    if (!a.im2col) {
      in_range(at("box", static_cast<int>(i)), a.box[i], 1, 256);
      m.box[i] = static_cast<uint16_t>(a.box[i]);
    }
    if (i + 1 < rank) m.stride[i] = a.gstride[i];
  }
  in_range("interleave", a.interleave, 0, 2);
  in_range("swizzle", a.swizzle, 0, static_cast<int>(std::size(kSwizzles)) - 1);
  in_range("oob", a.oob, 0, 1);
  m.interleave = static_cast<uint8_t>(a.interleave);
  m.swizzle = kSwizzles[a.swizzle].mode;
  m.atom = kSwizzles[a.swizzle].atom;
  m.fill = static_cast<uint8_t>(a.oob);
  if (a.im2col) {
    m.mode = a.wide ? MapMode::im2col_wide : MapMode::im2col;
    size_t corners = a.wide ? 1 : rank - 2;
    length("lower corner", a.lower.size(), corners);
    length("upper corner", a.upper.size(), corners);
    for (size_t i = 0; i < corners; ++i) {
      in_range(at("lower corner", static_cast<int>(i)), a.lower[i], -32768, 32767);
      in_range(at("upper corner", static_cast<int>(i)), a.upper[i], -32768, 32767);
      m.lower[i] = static_cast<int16_t>(a.lower[i]);
      m.upper[i] = static_cast<int16_t>(a.upper[i]);
    }
    in_range("channels per pixel", a.channels, 1, 256);
    in_range("pixels per column", a.pixels, 1, 1024);
    m.channels = static_cast<uint16_t>(a.channels);
    m.pixels = static_cast<uint16_t>(a.pixels);
  }
  m.check();
  return m;
}

}  // namespace tcgen05::vsm

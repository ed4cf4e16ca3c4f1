// ldmatrix, stmatrix and movmatrix (PTX ISA 9.7.14.5.15-17).
#include "vsm/ops/address.h"
#include "vsm/ops/common.h"
#include "vsm/ops/decompress.h"
#include "vsm/ops/matrix.h"

namespace tcgen05::vsm {
namespace {

constexpr int kRowBytes = 16;

enum class Packing : uint8_t { none, fp6, fp4 };

// In all of this file: in.u[0] space, u[1] address register is wide, u[2] transposed, u[3] Packing; list:
// registers.

// Packed rows hold 12 or 8 bytes; the rest is padding that is not read.
uint32_t row_bytes(const Instr& in) {
  switch (static_cast<Packing>(in.u[3])) {
    case Packing::fp6:
      return 12;
    case Packing::fp4:
      return 8;
    default:
      return kRowBytes;
  }
}

// Pointers to the rows: of matrix j row i in rows[j * height + i], whose address lane j * height + i gives.
void find_rows(Warp& w, const Instr& in, Mask m, int rows, bool write, uint8_t** out) {
  need_whole_warp(w, m);
  uint64_t addresses[32];
  lane_addresses(w, in.src[0], in.u[1], in.imm, m, addresses);
  const Mask used = rows == 32 ? ~Mask{0} : (Mask{1} << rows) - 1;
  lane_pointers(w, static_cast<Space>(in.u[0]), addresses, {row_bytes(in), kRowBytes, write}, used, out);
}

// A row of 16 elements of 8 bits.
void read_row(const Instr& in, const uint8_t* row, uint8_t* chunk) {
  std::memset(chunk, 0, kRowBytes);
  std::memcpy(chunk, row, row_bytes(in));
  if (static_cast<Packing>(in.u[3]) == Packing::fp4) decompress_fp4(chunk);
  if (static_cast<Packing>(in.u[3]) == Packing::fp6) decompress_fp6(chunk);
}

uint32_t word(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, 4);
  return v;
}

uint16_t half(const uint8_t* row, int column) {
  uint16_t v;
  std::memcpy(&v, row + 2 * column, 2);
  return v;
}

// 8 rows of 16 bytes per register: four bytes of a row per lane, or transposed two 16-bit elements of a
// column.
Flow load_8(Warp& w, const Instr& in, Mask m) {
  uint8_t* rows[32];
  find_rows(w, in, m, static_cast<int>(8 * in.list_size), false, rows);
  uint32_t out[4][32];
  for (uint32_t j = 0; j < in.list_size; ++j) {
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4, t = lane % 4;
      if (in.u[2]) {
        out[j][lane] = half(rows[j * 8 + 2 * t], g) | static_cast<uint32_t>(half(rows[j * 8 + 2 * t + 1], g))
                                                          << 16;
        continue;
      }
      uint8_t chunk[kRowBytes];
      read_row(in, rows[j * 8 + g], chunk);
      out[j][lane] = word(chunk + 4 * t);
    }
  }
  for (uint32_t j = 0; j < in.list_size; ++j)
    std::memcpy(w.out<uint32_t>(w.program->refs[in.list + j]), out[j], sizeof out[j]);
  return Flow::next;
}

// 16 rows of 16 bytes per pair of registers, transposed. The arrangement is that of CuTe's SM100_U8x8_LDSM_T:
// lane (g, t) receives columns g and g + 8 of rows 4t..4t+3, two rows per register.
Flow load_16(Warp& w, const Instr& in, Mask m) {
  uint8_t* rows[32];
  find_rows(w, in, m, static_cast<int>(8 * in.list_size), false, rows);
  uint8_t chunks[32][kRowBytes];
  for (uint32_t i = 0; i < 8 * in.list_size; ++i) read_row(in, rows[i], chunks[i]);
  for (uint32_t j = 0; j < in.list_size; ++j) {
    auto* d = w.out<uint32_t>(w.program->refs[in.list + j]);
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4, t = lane % 4;
      const uint8_t (*matrix)[kRowBytes] = &chunks[j / 2 * 16 + 4 * static_cast<uint32_t>(t) + 2 * (j % 2)];
      d[lane] = matrix[0][g] | matrix[1][g] << 8 | matrix[0][g + 8] << 16 |
                static_cast<uint32_t>(matrix[1][g + 8]) << 24;
    }
  }
  return Flow::next;
}

Flow store_8(Warp& w, const Instr& in, Mask m) {
  uint8_t* rows[32];
  find_rows(w, in, m, static_cast<int>(8 * in.list_size), true, rows);
  for (uint32_t j = 0; j < in.list_size; ++j) {
    auto* a = w.in<uint32_t>(w.program->refs[in.list + j]);
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4, t = lane % 4;
      if (in.u[2]) {
        for (int e = 0; e < 2; ++e) {
          const uint16_t v = static_cast<uint16_t>(a[lane] >> (16 * e));
          std::memcpy(rows[j * 8 + static_cast<uint32_t>(2 * t + e)] + 2 * g, &v, 2);
        }
      } else {
        std::memcpy(rows[j * 8 + static_cast<uint32_t>(g)] + 4 * t, &a[lane], 4);
      }
    }
  }
  ++w.cta->cluster->progress;
  return Flow::next;
}

// .m16n8.trans.b8: rows 2t and 2t+1 of 16 bytes, columns g and g + 8 (CuTe's SM100_U8x4_STSM_T).
Flow store_16(Warp& w, const Instr& in, Mask m) {
  uint8_t* rows[32];
  find_rows(w, in, m, static_cast<int>(8 * in.list_size), true, rows);
  for (uint32_t j = 0; j < in.list_size; ++j) {
    auto* a = w.in<uint32_t>(w.program->refs[in.list + j]);
    for (int lane = 0; lane < 32; ++lane)
      for (int e = 0; e < 4; ++e)
        rows[j * 8 + static_cast<uint32_t>(2 * (lane % 4) + e % 2)][lane / 4 + 8 * (e / 2)] =
            static_cast<uint8_t>(a[lane] >> (8 * e));
  }
  ++w.cta->cluster->progress;
  return Flow::next;
}

Flow transpose(Warp& w, const Instr& in, Mask m) {
  need_whole_warp(w, m);
  uint32_t a[32];
  std::memcpy(a, w.in<uint32_t>(in.src[0]), sizeof a);
  auto* d = w.out<uint32_t>(in.dst);
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    auto element = [&](int row) { return a[row * 4 + g / 2] >> (16 * (g % 2)) & 0xffff; };
    d[lane] = element(2 * t) | element(2 * t + 1) << 16;
  }
  return Flow::next;
}

void begin(Decoder& d) {
  d.need("sync");
  d.need("aligned");
  d.in.aligned = true;
}

void shared_address(Decoder& d, const Operand& x) {
  const Space named = take_space(d);
  if (named != Space::generic && named != Space::shared) d.fail("only shared memory is allowed");
  bool wide = false;
  d.in.src[0] = d.address(x, &d.in.imm, &wide);
  d.in.u[1] = wide;
  d.in.u[0] = static_cast<uint8_t>(space_of(d, x, named));
}

void register_list(Decoder& d, const Operand& x, bool writes, size_t count) {
  std::vector<Ref> list;
  append_registers(d, x, Type::b32, writes, count, writes ? "the destination" : "the source", list);
  d.set_list(list);
}

Packing take_packing(Decoder& d) {
  if (!d.take("b8x16")) return Packing::none;
  return d.need_any({"b6x16_p32", "b4x16_p64"}) == 0 ? Packing::fp6 : Packing::fp4;
}

}  // namespace

void decode_ldmatrix(Decoder& d) {
  begin(d);
  const int shape = d.need_any({"m8n8", "m8n16", "m16n16"});
  const size_t count = size_t{1} << d.need_any({"x1", "x2", "x4"});
  const bool trans = d.take("trans");
  d.need_operands(2);
  shared_address(d, d.operand(1));
  const Packing packing = take_packing(d);
  const bool b16 = packing == Packing::none && d.take("b16"), b8 = packing == Packing::none && d.take("b8");
  if (shape == 0 && !b16) d.fail(".m8n8 needs .b16");
  if (shape == 1 && (packing == Packing::none || trans))
    d.fail(".m8n16 needs .b8x16.b6x16_p32 or .b8x16.b4x16_p64, without .trans");
  if (shape == 2 && (!trans || count == 4 || (packing == Packing::none && !b8)))
    d.fail(".m16n16 needs .trans, .x1 or .x2, and .b8 or .b8x16");
  d.in.u[2] = trans;
  d.in.u[3] = static_cast<uint8_t>(packing);
  register_list(d, d.operand(0), true, shape == 2 ? 2 * count : count);
  d.in.fn = shape == 2 ? load_16 : load_8;
}

void decode_stmatrix(Decoder& d) {
  begin(d);
  const bool b8 = d.need_any({"m8n8", "m16n8"}) == 1;
  const size_t count = size_t{1} << d.need_any({"x1", "x2", "x4"});
  d.in.u[2] = d.take("trans");
  if (b8 && !d.in.u[2]) d.fail(".m16n8 needs .trans");
  d.need_operands(2);
  shared_address(d, d.operand(0));
  d.need(b8 ? "b8" : "b16");
  register_list(d, d.operand(1), false, count);
  d.in.fn = b8 ? store_16 : store_8;
}

void decode_movmatrix(Decoder& d) {
  begin(d);
  d.need("m8n8");
  d.need("trans");
  d.need("b16");
  simple_operands(d, Type::b32, 1);
  d.in.fn = transpose;
}

}  // namespace tcgen05::vsm

// tcgen05.ld, .st, .cp and their waits (PTX ISA 9.7.16.8; ptx_contract 13.1, 13.2).
#include "vsm/ops/tmem.h"

#include <cmath>
#include <iterator>
#include <stdexcept>

#include "model/descriptors.h"
#include "vsm/checker.h"
#include "vsm/ops/common.h"
#include "vsm/ops/decompress.h"
#include "vsm/ops/families.h"
#include "vsm/trace.h"

namespace tcgen05::vsm {
namespace {

using Kind = Operand::Kind;

enum class Shape : uint8_t { s32x32b, s16x64b, s16x128b, s16x256b, s16x32bx2 };

struct ShapeRow {
  std::string_view name;
  int registers;  // per repetition
  int most;       // repetitions
};
constexpr ShapeRow kShapes[] = {
    {"32x32b", 1, 128}, {"16x64b", 1, 128}, {"16x128b", 2, 64}, {"16x256b", 4, 32}, {"16x32bx2", 1, 128}};

struct Cell {
  int lane, column;
};

// Where register r of thread t lies, relative to the address.
Cell cell(Shape s, int t, int r, int half_offset) {
  switch (s) {
    case Shape::s32x32b:
      return {t, r};
    case Shape::s16x64b:
      return {t / 4 + 8 * (t & 1), (t / 2 & 1) + 2 * r};
    case Shape::s16x128b:
      return {t / 4 + 8 * (r & 1), t % 4 + 4 * (r / 2)};
    case Shape::s16x256b:
      return {t / 4 + 8 * (r / 2 & 1), (r & 1) + 2 * (t % 4) + 8 * (r / 4)};
    default:
      return {t % 16, r + (t >= 16 ? half_offset : 0)};
  }
}

struct Transfer {
  Shape shape;
  bool packed = false;  // .pack::16b, .unpack::16b
  int half_offset = 0;
  // .ld.red
  Ref reduced = kNoRef;
  bool max = false, abs = false, nan = false;
  Type type = Type::none;
};

// Calls f(register slot, thread, cell pointer) for every register of every thread; checks the address.
template <class F>
void for_cells(Warp& w, const Instr& in, const Transfer& t, bool write, F&& f) {
  uint32_t address = w.in<uint32_t>(in.src[0])[first_lane(w.alive)] + static_cast<uint32_t>(in.imm);
  for_lanes(w.alive, [&](int i) {
    if (w.in<uint32_t>(in.src[0])[i] + static_cast<uint32_t>(in.imm) != address)
      throw Fault{"threads of the warp give different tensor memory addresses", i};
  });
  int base_lane = static_cast<int>(address >> 16 & 31), column = static_cast<int>(address & 0xffff);
  int quarter = 32 * static_cast<int>(w.index % 4);
  uint32_t* tmem = w.cta->tmem_data();
  w.cta->cluster->traffic.count(Traffic::tensor, write, uint64_t{4} * 32 * in.list_size);
  if (Trace* trace = w.cta->cluster->trace.get())
    trace->note({{"address", address}, {"quarter", w.index % 4}});
  const Ref* refs = &w.program->refs[in.list];
  int n = static_cast<int>(in.list_size), scale = t.packed ? 2 : 1;
  for (int r = 0; r < n; ++r) {
    for (int lane = 0; lane < 32; ++lane) {
      Cell c = cell(t.shape, lane, r, t.half_offset);
      int tl = base_lane + c.lane, tc = column + scale * c.column;
      if (tl > 31 || tc < 0 || tc + scale > 512)
        throw Fault{"tensor memory access at " + hex(address) + " reaches lane " +
                        std::to_string(quarter + tl) + ", column " + std::to_string(tc) +
                        "; the warp's lanes are " + std::to_string(quarter) + " to " +
                        std::to_string(quarter + 31) + ", columns 0 to 511",
                    lane};
      f(refs[r], lane, tmem + (quarter + tl) * 512 + tc);
    }
  }
}

// Strict mode: cells from `p` on. False if one was never written.
bool check_read(Warp& w, const AsyncAccess& a, const uint32_t* p, int cells, int lane) {
  int at = static_cast<int>(p - w.cta->tmem_data());
  bool written = true;
  for (int i = 0; i < cells; ++i)
    written = w.checker->tensor_read(w, a, *w.cta, at / 512, at % 512 + i, lane) && written;
  return written;
}

void check_write(Warp& w, const AsyncAccess& a, const uint32_t* p, int cells, int lane) {
  int at = static_cast<int>(p - w.cta->tmem_data());
  for (int i = 0; i < cells; ++i) w.checker->tensor_write(w, a, *w.cta, at / 512, at % 512 + i, lane);
}

uint32_t reduce(const Transfer& t, uint32_t a, uint32_t b) {
  if (t.type == Type::f32) {
    float x = from_slot<float>(a), y = from_slot<float>(b);
    if (t.abs) {
      x = std::fabs(x);
      y = std::fabs(y);
    }
    if (x != x || y != y) return t.nan ? 0x7fffffff : to_slot<float>(x != x ? y : x);
    bool first = t.max ? x > y || (x == y && !std::signbit(x)) : x < y || (x == y && std::signbit(x));
    return to_slot<float>(first ? x : y);
  }
  bool less = t.type == Type::s32 ? static_cast<int32_t>(a) < static_cast<int32_t>(b) : a < b;
  return t.max == less ? b : a;
}

Flow ld(Warp& w, const Instr& in, Mask m) {
  const auto& t = *static_cast<const Transfer*>(in.aux);
  bool first[32];
  std::fill(first, first + 32, true);
  AsyncAccess access{};
  if (w.checker) access = w.checker->tensor_load(w);
  for_cells(w, in, t, false, [&](Ref r, int lane, const uint32_t* p) {
    if (!(m >> lane & 1)) return;
    uint32_t v = t.packed ? (p[0] & 0xffff) | p[1] << 16 : *p;
    w.out<uint32_t>(r)[lane] = v;
    if (w.checker && !check_read(w, access, p, t.packed ? 2 : 1, lane)) {
      w.checker->undefine(r, lane);
      if (t.reduced != kNoRef) w.checker->undefine(t.reduced, lane);
    }
    if (t.reduced == kNoRef) return;
    uint32_t& acc = w.out<uint32_t>(t.reduced)[lane];
    uint32_t start = t.type == Type::f32 && t.abs ? v & 0x7fffffff : v;
    acc = first[lane] ? start : reduce(t, acc, v);
    first[lane] = false;
  });
  return Flow::next;
}

Flow st(Warp& w, const Instr& in, Mask m) {
  const auto& t = *static_cast<const Transfer*>(in.aux);
  AsyncAccess access{};
  if (w.checker) access = w.checker->tensor_store(w);
  for_cells(w, in, t, true, [&](Ref r, int lane, uint32_t* p) {
    if (!(m >> lane & 1)) return;
    uint32_t v = w.in<uint32_t>(r)[lane];
    if (w.checker) check_write(w, access, p, t.packed ? 2 : 1, lane);
    if (t.packed) {
      p[0] = (p[0] & 0xffff0000) | (v & 0xffff);
      p[1] = (p[1] & 0xffff0000) | v >> 16;
    } else {
      *p = v;
    }
  });
  ++w.cta->cluster->progress;
  return Flow::next;
}

// Shape, repetition and address of a load or store, with its registers.
void decode_transfer(Decoder& d, Transfer& t, bool writes_registers, size_t vector_at, size_t address_at) {
  d.need("sync");
  d.need("aligned");
  d.in.aligned = true;
  int shape =
      d.need_any({kShapes[0].name, kShapes[1].name, kShapes[2].name, kShapes[3].name, kShapes[4].name});
  t.shape = static_cast<Shape>(shape);
  std::string_view repeat = d.take_prefix("x");
  int n = repeat.empty() ? 0 : std::atoi(std::string(repeat.substr(1)).c_str());
  const ShapeRow& row = kShapes[shape];
  if (n < 1 || n > row.most || (n & (n - 1)) || repeat != "x" + std::to_string(n))
    d.fail("." + std::string(row.name) + " takes .x1 to .x" + std::to_string(row.most) +
           " in powers of two, found '." + std::string(repeat) + "'");
  std::vector<Ref> refs = d.refs(d.operand(vector_at), Type::b32, writes_registers);
  if (refs.size() != static_cast<size_t>(n * row.registers))
    d.fail("has " + std::to_string(refs.size()) + " registers, needs " + std::to_string(n * row.registers));
  d.set_list(refs);
  bool wide = false;
  d.in.src[0] = d.address(d.operand(address_at), &d.in.imm, &wide);
  if (wide) d.fail("a tensor memory address is a 32-bit register");
}

void half_offset(Decoder& d, Transfer& t, size_t at) {
  if (t.shape != Shape::s16x32bx2) return;
  uint64_t offset = d.constant(d.operand(at), "the half offset of .16x32bx2");
  if (offset > 511) d.fail("the half offset is " + std::to_string(offset) + ", allowed: 0 to 511");
  t.half_offset = static_cast<int>(offset);
}

void decode_ld(Decoder& d) {
  auto t = std::make_shared<Transfer>();
  t->packed = d.take("pack::16b");
  d.type_of({Type::b32});
  decode_transfer(d, *t, true, 0, 1);
  half_offset(d, *t, 2);
  d.need_operands(t->shape == Shape::s16x32bx2 ? 3 : 2);
  d.own(t);
  d.in.fn = ld;
}

void decode_ld_red(Decoder& d) {
  auto t = std::make_shared<Transfer>();
  t->max = d.need_any({"min", "max"}) == 1;
  t->abs = d.take("abs");
  t->nan = d.take("NaN");
  t->type = d.type_of({Type::f32, Type::u32, Type::s32});
  if (t->type != Type::f32 && (t->abs || t->nan)) d.fail(".abs and .NaN are for .f32 only");
  decode_transfer(d, *t, true, 0, 2);
  if (t->shape != Shape::s32x32b && t->shape != Shape::s16x32bx2)
    d.fail("tcgen05.ld.red takes .32x32b and .16x32bx2");
  if (d.in.list_size < 2) d.fail("tcgen05.ld.red takes .x2 and more");
  t->reduced = d.dst(d.operand(1), Type::b32);
  half_offset(d, *t, 3);
  d.need_operands(t->shape == Shape::s16x32bx2 ? 4 : 3);
  d.own(t);
  d.in.fn = ld;
}

void decode_st(Decoder& d) {
  auto t = std::make_shared<Transfer>();
  t->packed = d.take("unpack::16b");
  d.type_of({Type::b32});
  size_t n = d.operands();
  decode_transfer(d, *t, false, n - 1, 0);
  half_offset(d, *t, 1);
  d.need_operands(t->shape == Shape::s16x32bx2 ? 3 : 2);
  d.own(t);
  d.in.fn = st;
}

Flow wait_loads(Warp& w, const Instr&, Mask) {
  if (w.checker) w.checker->wait_loads(w);
  return Flow::next;
}

Flow wait_stores(Warp& w, const Instr&, Mask) {
  if (w.checker) w.checker->wait_stores(w);
  return Flow::next;
}

template <Handler kHandler>
void decode_wait(Decoder& d) {
  d.need("sync");
  d.need("aligned");
  d.in.aligned = true;
  d.need_operands(0);
  d.in.fn = kHandler;
}

// ---- cp ----

enum class Unpack : uint8_t { none, fp6, fp4 };

struct Copy {
  int group = 1;
  int rows = 128, chunks = 1;  // chunks of 16 bytes per row
  int multicast = 0;           // 0 none, 1 warpx2::02_13, 2 warpx2::01_23, 3 warpx4
  bool spread = false;         // 4x256b: one row per quarter
  Unpack unpack = Unpack::none;
};

void decompress(Unpack u, uint8_t* chunk) {
  if (u == Unpack::fp4) decompress_fp4(chunk);
  if (u == Unpack::fp6) decompress_fp6(chunk);
}

// Shared address of a 16-byte chunk: the K-major walk of ptx_contract 5.2, swizzled on the absolute address.
uint32_t chunk_address(const model::SharedDescriptor& s, int row, int chunk) {
  uint32_t span = 16u << (s.swizzle == 0 ? 0 : s.swizzle);
  uint32_t a = s.start + static_cast<uint32_t>(row % 8) * span + static_cast<uint32_t>(row / 8) * s.sdo +
               static_cast<uint32_t>(chunk) * (s.swizzle == 0 ? s.ldo : 16);
  if (s.swizzle) a ^= (a >> 3) & (((1u << s.swizzle) - 1) << 4);
  return a;
}

std::vector<int> lanes_of(const Copy& c, int row) {
  if (c.spread) return {32 * row};
  switch (c.multicast) {
    case 1:
      return {row, row + 64};
    case 2:
      return row < 32 ? std::vector<int>{row, row + 32} : std::vector<int>{row + 32, row + 64};
    case 3:
      return {row, row + 32, row + 64, row + 96};
    default:
      return {row};
  }
}

void copy(Cta& cta, const Copy& c, const model::SharedDescriptor& s, int base_lane, int column) {
  uint32_t* tmem = cta.tmem_data();
  for (int row = 0; row < c.rows; ++row) {
    for (int chunk = 0; chunk < c.chunks; ++chunk) {
      uint8_t bytes[16];
      std::memcpy(bytes, cta.shared.data() + chunk_address(s, row, chunk), 16);
      decompress(c.unpack, bytes);
      for (int lane : lanes_of(c, row))
        std::memcpy(tmem + (lane + base_lane) * 512 + column + 4 * chunk, bytes, 16);
    }
  }
}

// Strict mode: what the copy reads and writes. Compressed elements fill 12 or 8 of their 16 bytes.
void check_copy(Warp& w, const Copy& c, const model::SharedDescriptor& s, const std::vector<Cta*>& ctas,
                int base_lane, int column, int lane) {
  AsyncAccess a = w.checker->tensor_copy(w, lane);
  uint32_t bytes = c.unpack == Unpack::fp6 ? 12 : c.unpack == Unpack::fp4 ? 8 : 16;
  for (Cta* cta : ctas)
    for (int row = 0; row < c.rows; ++row)
      for (int chunk = 0; chunk < c.chunks; ++chunk) {
        w.checker->shared_async(w, cta->rank << kRankShift | chunk_address(s, row, chunk), bytes, lane, a);
        for (int to : lanes_of(c, row))
          for (int i = 0; i < 4; ++i)
            w.checker->tensor_write(w, a, *cta, to + base_lane, column + 4 * chunk + i, lane);
      }
  w.checker->issued(w, a);
}

Flow cp(Warp& w, const Instr& in, Mask m) {
  const auto& c = *static_cast<const Copy*>(in.aux);
  for_lanes(m, [&](int i) {
    check_pair(w, c.group, i);
    uint32_t address = w.in<uint32_t>(in.src[0])[i] + static_cast<uint32_t>(in.imm);
    model::SharedDescriptor s;
    try {
      s = model::decode_shared_descriptor(w.in<uint64_t>(in.src[1])[i], "source");
    } catch (const std::invalid_argument& e) {
      throw Fault{e.what(), i};
    }
    if (s.swizzle == 4) throw Fault{"tcgen05.cp has no 128-byte swizzle with 32-byte atoms", i};
    int lane = static_cast<int>(address >> 16), column = static_cast<int>(address & 0xffff);
    if (lane > (c.spread ? 31 : 0))
      throw Fault{"destination " + hex(address) + " starts at lane " + std::to_string(lane) + ", allowed: 0" +
                      (c.spread ? " to 31" : ""),
                  i};
    if (column % 4 || column + 4 * c.chunks > 512)
      throw Fault{"destination " + hex(address) + " starts at column " + std::to_string(column) +
                      ", must be a multiple of 4 that leaves room",
                  i};
    std::vector<Cta*> ctas = pair_of(w, c.group);
    for (Cta* cta : ctas)
      for (int row = 0; row < c.rows; ++row)
        for (int chunk = 0; chunk < c.chunks; ++chunk)
          if (uint32_t a = chunk_address(s, row, chunk); a < kReservedShared || a + 16 > cta->shared.size())
            throw Fault{
                "source descriptor reaches shared address " + hex(a) + ", outside the CTA's shared memory",
                i};
    Traffic& traffic = w.cta->cluster->traffic;
    uint64_t bytes = uint64_t{16} * static_cast<uint64_t>(c.rows * c.chunks) * ctas.size();
    traffic.count(Traffic::shared, false, bytes);
    traffic.count(Traffic::tensor, true, bytes * lanes_of(c, 0).size());
    if (Trace* t = w.cta->cluster->trace.get())
      t->note({{"to", address}, {"from", s.start}, {"bytes", bytes}});
    if (w.checker) check_copy(w, c, s, ctas, lane, column, i);
    w.cta->cluster->start(tensor_queue(w.cta->rank), [ctas, &c, s, lane, column] {
      for (Cta* cta : ctas) copy(*cta, c, s, lane, column);
    });
  });
  return Flow::next;
}

void decode_cp(Decoder& d) {
  auto c = std::make_shared<Copy>();
  c->group = take_cta_group(d);
  int shape = d.need_any({"128x256b", "128x128b", "4x256b", "64x128b", "32x128b"});
  c->multicast = d.take_any({"warpx2::02_13", "warpx2::01_23", "warpx4"}) + 1;
  bool right = shape < 3    ? c->multicast == 0
               : shape == 3 ? c->multicast == 1 || c->multicast == 2
                            : c->multicast == 3;
  if (!right)
    d.fail(
        ".64x128b needs .warpx2::02_13 or .warpx2::01_23, .32x128b needs .warpx4, the other shapes take "
        "none");
  static constexpr int kRows[] = {128, 128, 4, 64, 32};
  c->rows = kRows[shape];
  c->chunks = shape == 0 || shape == 2 ? 2 : 1;
  c->spread = shape == 2;
  bool b8 = d.take("b8x16");
  int format = d.take_any({"b6x16_p32", "b4x16_p64"});
  if (b8 != (format >= 0)) d.fail("decompression is spelled .b8x16.b6x16_p32 or .b8x16.b4x16_p64");
  c->unpack = static_cast<Unpack>(format + 1);
  d.need_operands(2);
  bool wide = false;
  d.in.src[0] = d.address(d.operand(0), &d.in.imm, &wide);
  if (wide) d.fail("a tensor memory address is a 32-bit register");
  d.in.src[1] = d.src(d.operand(1), Type::b64);
  d.own(c);
  d.in.fn = cp;
}

constexpr Entry kEntries[] = {
    {"tcgen05.ld", decode_ld, "all shapes, {.pack::16b}"},
    {"tcgen05.ld.red", decode_ld_red, ".min .max {.abs} {.NaN} .f32 .u32 .s32"},
    {"tcgen05.st", decode_st, "all shapes, {.unpack::16b}"},
    {"tcgen05.wait::ld", decode_wait<wait_loads>, ""},
    {"tcgen05.wait::st", decode_wait<wait_stores>, ""},
    {"tcgen05.cp", decode_cp, "all shapes, multicasts and decompressions"},
};

}  // namespace

Family tmem_family() { return {"tcgen05: moving data", kEntries, std::size(kEntries)}; }

}  // namespace tcgen05::vsm

// SIMD video instructions (PTX ISA 9.7.18): two 16-bit or four 8-bit lanes in a register. Compilers write
// them for CUDA's SIMD intrinsics. Selectors and masks, which inline assembly may write, are not parsed.
#include <algorithm>
#include <iterator>

#include "vsm/ops/common.h"
#include "vsm/ops/families.h"

namespace tcgen05::vsm {
namespace {

enum class Video : uint8_t { add, sub, average, abs_diff, min, max, set };
enum class Compare : uint8_t { eq, ne, lt, le, gt, ge };

// u[0] Video, u[1] lanes, u[2] a is signed, u[3] b is signed, u[4] signed result, u[5] bit 0 .sat, bit 1
// .add; imm: the comparison of vset.
int32_t lane_value(uint32_t word, int lane, int bits, bool is_signed) {
  uint32_t v = word << (32 - bits * (lane + 1));
  return is_signed ? static_cast<int32_t>(v) >> (32 - bits) : static_cast<int32_t>(v >> (32 - bits));
}

bool compare(Compare c, int32_t a, int32_t b) {
  switch (c) {
    case Compare::eq:
      return a == b;
    case Compare::ne:
      return a != b;
    case Compare::lt:
      return a < b;
    case Compare::le:
      return a <= b;
    case Compare::gt:
      return a > b;
    default:
      return a >= b;
  }
}

int32_t combine(Video op, Compare c, int32_t a, int32_t b) {
  switch (op) {
    case Video::add:
      return a + b;
    case Video::sub:
      return a - b;
    case Video::average:
      return (a + b + (a + b >= 0)) >> 1;
    case Video::abs_diff:
      return a < b ? b - a : a - b;
    case Video::min:
      return std::min(a, b);
    case Video::max:
      return std::max(a, b);
    default:
      return compare(c, a, b);
  }
}

Flow video(Warp& w, const Instr& in, Mask m) {
  auto* d = w.out<uint32_t>(in.dst);
  auto *a = w.in<uint32_t>(in.src[0]), *b = w.in<uint32_t>(in.src[1]), *c = w.in<uint32_t>(in.src[2]);
  const int lanes = in.u[1], bits = 32 / lanes;
  const int32_t least = in.u[4] ? -(1 << (bits - 1)) : 0, most = (1 << (in.u[4] ? bits - 1 : bits)) - 1;
  for_lanes(m, [&](int i) {
    uint32_t packed = 0, sum = c[i];
    for (int lane = 0; lane < lanes; ++lane) {
      int32_t t = combine(static_cast<Video>(in.u[0]), static_cast<Compare>(in.imm),
                          lane_value(a[i], lane, bits, in.u[2]), lane_value(b[i], lane, bits, in.u[3]));
      if (in.u[5] & 1) t = std::clamp(t, least, most);
      sum += static_cast<uint32_t>(t);
      packed |= (static_cast<uint32_t>(t) & (~0u >> (32 - bits))) << (bits * lane);
    }
    d[i] = in.u[5] & 2 ? sum : packed;
  });
  return Flow::next;
}

void decode_video(Decoder& d) {
  std::string_view root = d.root();
  static constexpr std::string_view kNames[] = {"vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax", "vset"};
  auto name = std::find(std::begin(kNames), std::end(kNames), root.substr(0, root.size() - 1));
  const bool sets = *name == "vset";
  d.in.u[0] = static_cast<uint8_t>(name - std::begin(kNames));
  d.in.u[1] = root.back() == '2' ? 2 : 4;
  bool add = d.take("add"), sat = !sets && !add && d.take("sat");
  d.in.u[5] = static_cast<uint8_t>(sat | add << 1);
  if (sets) d.in.imm = static_cast<uint64_t>(d.need_any({"eq", "ne", "lt", "le", "gt", "ge"}));
  d.in.u[4] = !sets && d.type_of({Type::u32, Type::s32}) == Type::s32;
  d.in.u[2] = d.type_of({Type::u32, Type::s32}) == Type::s32;
  d.in.u[3] = d.type_of({Type::u32, Type::s32}) == Type::s32;
  simple_operands(d, Type::b32, 3);
  d.in.fn = video;
}

constexpr std::string_view kForms = "{.sat} {.add} .u32 .s32 each, without selectors and masks";

constexpr Entry kEntries[] = {
    {"vadd2", decode_video, kForms},     {"vsub2", decode_video, kForms},
    {"vavrg2", decode_video, kForms},    {"vabsdiff2", decode_video, kForms},
    {"vmin2", decode_video, kForms},     {"vmax2", decode_video, kForms},
    {"vset2", decode_video, kForms},     {"vadd4", decode_video, kForms},
    {"vsub4", decode_video, kForms},     {"vavrg4", decode_video, kForms},
    {"vabsdiff4", decode_video, kForms}, {"vmin4", decode_video, kForms},
    {"vmax4", decode_video, kForms},     {"vset4", decode_video, kForms},
};

}  // namespace

Family video_family() { return {"SIMD video", kEntries, std::size(kEntries), true}; }

}  // namespace tcgen05::vsm

#include "model/form.h"

#include <stdexcept>
#include <string>

namespace tcgen05::model {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

std::string kind_text(Kind kind) { return "kind::" + std::string(kKindNames[static_cast<int>(kind)]); }

void check_opcode(const Opcode& opcode) {
  if (opcode.cta_group != 1 && opcode.cta_group != 2) {
    refuse("opcode: cta_group is " + std::to_string(opcode.cta_group) + ", allowed: 1, 2");
  }
  const bool scaled_kind = opcode.kind >= Kind::mxf8f6f4;
  if (scaled_kind != opcode.block_scaled()) {
    refuse("opcode: " + kind_text(opcode.kind) +
           (scaled_kind ? " needs a scale vector" : " takes no scale vector"));
  }
  if (opcode.ws && (opcode.cta_group != 1 || scaled_kind)) {
    refuse("opcode: .ws takes cta_group::1 and the kinds f16, tf32, f8f6f4, i8 only");
  }
  if (!scaled_kind) return;
  const int vec = opcode.scale_vec;
  const bool ok = opcode.kind == Kind::mxf8f6f4 ? vec == 1
                  : opcode.kind == Kind::mxf4   ? vec == 2
                                                : vec == 2 || vec == 4;
  if (!ok) refuse("opcode: " + kind_text(opcode.kind) + " has no scale_vec::" + std::to_string(vec) + "X");
}

// Format codes of the instruction descriptor (ptx_contract 4.1-4.3).
Format operand_format(Kind kind, uint32_t code, const char* operand) {
  static constexpr Format kF16[] = {Format::f16, Format::bf16};
  static constexpr Format kI8[] = {Format::u8, Format::s8};
  static constexpr Format kF8[] = {Format::e4m3, Format::e5m2, Format::e5m2,
                                   Format::e2m3, Format::e3m2, Format::e2m1};
  switch (kind) {
    case Kind::f16:
      if (code < 2) return kF16[code];
      break;
    case Kind::tf32:
      if (code == 2) return Format::tf32;
      break;
    case Kind::i8:
      if (code < 2) return kI8[code];
      break;
    case Kind::f8f6f4:
    case Kind::mxf8f6f4:
      if (code < 6 && code != 2) return kF8[code];
      break;
    case Kind::mxf4:
    case Kind::mxf4nvf4:
      if (code == 1) return Format::e2m1;
      break;
  }
  refuse("instruction descriptor: " + std::string(operand) + " format code " + std::to_string(code) +
         " is reserved for " + kind_text(kind));
}

Container container(Kind kind, Format format, bool tmem) {
  switch (info(format).storage_bits) {
    case 32:
      return Container::plain32;
    case 16:
      return Container::plain16;
    case 6:
      return tmem ? Container::fp6_byte : Container::fp6_padded;
    case 4:
      if (kind == Kind::mxf4 || kind == Kind::mxf4nvf4) return Container::nibbles;
      return tmem ? Container::fp4_byte : Container::fp4_padded;
    default:
      return Container::plain8;
  }
}

Accumulator accumulator(Kind kind, uint32_t code, Format a, Format b) {
  if (kind == Kind::i8) {
    if (code == 2) return Accumulator::s32;
    refuse("instruction descriptor: D format code " + std::to_string(code) +
           " for kind::i8, allowed: 2 (int32)");
  }
  if (code == 1) return Accumulator::f32;
  if (code == 0 && kind == Kind::f8f6f4) return Accumulator::f16;
  if (code == 0 && kind == Kind::f16) {
    if (a == Format::f16 && b == Format::f16) return Accumulator::f16;
    refuse("instruction descriptor: D format float16 needs float16 A and B, given " +
           std::string(info(a).name) + " and " + std::string(info(b).name));
  }
  refuse("instruction descriptor: D format code " + std::to_string(code) + " for " + kind_text(kind) +
         ", allowed: 1 (float32)" + (kind == Kind::tf32 ? "" : " or 0 (float16)"));
}

Datapath datapath(const Opcode& opcode, int m) {
  if (opcode.cta_group == 2) return m == 256 ? Datapath{'A', 128, 1, 0} : Datapath{'B', 64, 2, 64};
  if (m == 128) return {'D', 128, 1, 0};
  if (m == 64) return opcode.ws ? Datapath{'E', 64, 2, 64} : Datapath{'F', 64, 1, 0};
  return {'G', 32, 4, 32};
}

void check_m(const Opcode& opcode, int m) {
  const bool pair = opcode.cta_group == 2;
  bool ok = m == 128;
  std::string allowed = "128";
  if (pair) {
    ok = m == 128 || m == 256;
    allowed = "128, 256";
  } else if (opcode.ws) {
    ok = m == 32 || m == 64 || m == 128;
    allowed = "32, 64, 128";
  } else if (!opcode.block_scaled()) {
    ok = m == 64 || m == 128;
    allowed = "64, 128";
  }
  if (!ok) {
    refuse("instruction descriptor: M = " + std::to_string(m) + ", allowed: " + allowed + " for " +
           kind_text(opcode.kind) + (opcode.ws ? " with .ws" : "") + ", cta_group " +
           std::to_string(opcode.cta_group));
  }
}

// OQ1. A in shared memory: PTX ISA 9.4 and CUTLASS; A in TMEM: CUTLASS; i8: both rules together.
void check_n(const Opcode& opcode, int m, int n, bool a_in_tmem) {
  const bool pair = opcode.cta_group == 2;
  if (opcode.ws) {
    if (n == 64 || n == 128 || n == 256) return;
    refuse("instruction descriptor: N = " + std::to_string(n) + ", allowed with .ws: 64, 128, 256");
  }
  int step = pair ? 16 : 8;
  std::string rule = "PTX ISA 9.4";
  if (a_in_tmem && !opcode.block_scaled()) {
    step = pair ? 32 : m == 128 ? 16 : 8;
    rule = "A in TMEM, CUTLASS";
  }
  bool ok = n > 0 && n <= 256 && n % step == 0;
  if (opcode.kind == Kind::i8) {
    rule += "; i8: " + std::string(pair ? "multiples of 32" : "8, 24 and multiples of 16");
    ok = ok && (pair ? n % 32 == 0 : n == 8 || n == 24 || n % 16 == 0);
  }
  if (!ok) {
    refuse("instruction descriptor: N = " + std::to_string(n) + ", allowed: " + std::to_string(step) +
           " to 256 in steps of " + std::to_string(step) + " (" + rule + ", OQ1)");
  }
}

void check_major(const Operand& operand, bool in_tmem, const char* name) {
  const std::string who = std::string(name) + " ";
  if (operand.mn_major) {
    if (in_tmem) refuse(who + "in TMEM is K-major, given MN-major (instruction descriptor bit 15)");
    if (info(operand.format).storage_bits < 8) {
      refuse(who + "of format " + std::string(info(operand.format).name) +
             " must be K-major, given MN-major: only 8, 16 and 32-bit elements can be transposed");
    }
  }
  if (in_tmem) return;
  const bool tf32_mn = operand.mn_major && operand.format == Format::tf32;
  if (tf32_mn && operand.shared.swizzle != 4) {
    refuse(who + "descriptor: MN-major tf32 takes swizzle mode 4, given mode " +
           std::to_string(operand.shared.swizzle));
  }
  if (!tf32_mn && operand.shared.swizzle == 4) {
    // OQ7: never with K-major.
    refuse(who + "descriptor: swizzle mode 4 is for MN-major tf32 only");
  }
}

void resolve_scales(const Mma& mma, const InstructionDescriptor& d, Form& form) {
  const Opcode& opcode = mma.opcode;
  const int vec = opcode.scale_vec;
  if (d.k96) refuse("instruction descriptor: K = 96 (bit 31) exists on sm_103a and sm_107a only");
  const bool ue4m3_allowed = opcode.kind == Kind::mxf4nvf4 && vec == 4;
  if (d.scale_type == 0 && !ue4m3_allowed) {
    refuse(
        "instruction descriptor: scale type 0 (float8_e4m3fn) needs kind::mxf4nvf4 with scale_vec::4X, "
        "given " +
        kind_text(opcode.kind) + " with scale_vec::" + std::to_string(vec) + "X");
  }
  // OQ12: UE8M0 with scale_vec::4X is accepted.
  for (const auto& [id, name] : {std::pair{d.sfa_id, "SFA"}, std::pair{d.sfb_id, "SFB"}}) {
    if (id % vec != 0) {
      refuse("instruction descriptor: " + std::string(name) + " id " + std::to_string(id) +
             ", allowed with scale_vec::" + std::to_string(vec) + "X: multiples of " + std::to_string(vec));
    }
  }
  form.sfa_id = static_cast<int>(d.sfa_id);
  form.sfb_id = static_cast<int>(d.sfb_id);
  form.arithmetic.scale = d.scale_type == 1 ? ScaleFormat::ue8m0 : ScaleFormat::ue4m3;
  form.arithmetic.scale_block = form.arithmetic.k / vec;
  form.arithmetic.grouped = opcode.kind != Kind::mxf8f6f4;
}

void check_masks(const Mma& mma) {
  const bool masked = !mma.opcode.ws && !mma.opcode.block_scaled();
  for (int word = 0; word < 8; ++word) {
    const bool allowed = masked && word < 4 * mma.opcode.cta_group;
    if (mma.disable_output_lane[word] != 0 && !allowed) {
      refuse("disable_output_lane: word " + std::to_string(word) + " is set, but " +
             (masked ? "cta_group::1 has 4 words" : "only dense instructions without .ws have a lane mask"));
    }
  }
  if (mma.zero_column_mask != 0 && !mma.opcode.ws) {
    refuse("zero_column_mask: only .ws instructions have one");
  }
}

}  // namespace

Form resolve(const Mma& mma) {
  const Opcode& opcode = mma.opcode;
  check_opcode(opcode);
  check_masks(mma);
  const InstructionDescriptor d = decode_instruction_descriptor(opcode.kind, mma.idesc);
  if (d.sparse || d.sparsity_selector != 0) {
    refuse("instruction descriptor: sparse (bits 0-2) needs .sp, which is not offered");
  }
  if (d.max_shift != 0 && !opcode.ws) refuse("instruction descriptor: maximal shift (bits 30-31) needs .ws");
  const bool integer = opcode.kind == Kind::i8;
  if (d.saturate && !integer) refuse("instruction descriptor: saturate (bit 3) is for kind::i8 only");
  if ((d.negate_a || d.negate_b) && integer)
    refuse("instruction descriptor: kind::i8 cannot negate (bits 13-14)");

  Form form;
  form.m = d.m;
  form.n = d.n;
  form.cta_group = opcode.cta_group;
  check_m(opcode, d.m);
  check_n(opcode, d.m, d.n, mma.a_in_tmem);
  form.datapath = datapath(opcode, d.m);

  Operand &a = form.a, &b = form.b;
  a.format = operand_format(opcode.kind, d.a_format, "A");
  b.format = operand_format(opcode.kind, d.b_format, "B");  // OQ6: float16 with bfloat16 is accepted
  a.container = container(opcode.kind, a.format, mma.a_in_tmem);
  b.container = container(opcode.kind, b.format, false);
  a.mn_major = d.a_mn_major;
  b.mn_major = d.b_mn_major;
  if (!mma.a_in_tmem) a.shared = decode_shared_descriptor(mma.a, "a");
  b.shared = decode_shared_descriptor(mma.b, "b");
  check_major(a, mma.a_in_tmem, "a");
  check_major(b, false, "b");
  const int byte_step = 16 * opcode.cta_group;
  if (b.mn_major && b.container == Container::plain8 && d.n % byte_step != 0) {
    refuse("instruction descriptor: N = " + std::to_string(d.n) + ", must be a multiple of " +
           std::to_string(byte_step) + " with 8-bit MN-major B");
  }

  Arithmetic& arithmetic = form.arithmetic;
  arithmetic.a = a.format;
  arithmetic.b = b.format;
  arithmetic.negate_a = d.negate_a;
  arithmetic.negate_b = d.negate_b;
  arithmetic.saturate = d.saturate;
  arithmetic.k = b.container == Container::nibbles   ? 64
                 : b.container == Container::plain16 ? 16
                 : b.container == Container::plain32 ? 8
                                                     : 32;
  if (opcode.block_scaled()) {
    resolve_scales(mma, d, form);
  } else {
    arithmetic.d = accumulator(opcode.kind, d.d_format, a.format, b.format);
  }
  if (opcode.ws) form.zero_columns = decode_zero_column_mask(mma.zero_column_mask);
  if (form.zero_columns.column_shift != 0) {
    refuse("zero_column_mask: column shift " + std::to_string(form.zero_columns.column_shift) +
           " is not offered, must be 0");
  }
  return form;
}

}  // namespace tcgen05::model

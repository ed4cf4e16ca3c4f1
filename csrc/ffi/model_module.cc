#include "ffi/model_module.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <map>
#include <string>
#include <vector>

#include "model/descriptors.h"
#include "model/dot.h"
#include "model/form.h"
#include "model/instruction.h"
#include "model/run_plan.h"
#include "plan/opcode.h"
#include "plan/plan.h"

namespace py = pybind11;

namespace tcgen05 {
namespace {

using model::CtaMemory;
using model::Mma;

template <typename T>
using Array = py::array_t<T, py::array::c_style>;
template <typename T>
using Converted = py::array_t<T, py::array::c_style | py::array::forcecast>;

Kind kind_of(const std::string& name) {
  for (size_t i = 0; i < kKindNames.size(); ++i) {
    if (kKindNames[i] == name) return static_cast<Kind>(i);
  }
  throw std::invalid_argument("kind '" + name + "' does not exist");
}

model::Format format_of(const std::string& name) {
  for (size_t i = 0; i < std::size(model::kFormats); ++i) {
    if (model::kFormats[i].name == name) return static_cast<model::Format>(i);
  }
  throw std::invalid_argument("format '" + name + "' does not exist");
}

py::dict opcode_dict(const Opcode& opcode) {
  static const char* collectors[] = {"", "fill", "use", "lastuse", "discard"};
  py::dict out;
  out["kind"] = std::string(kKindNames[static_cast<size_t>(opcode.kind)]);
  out["cta_group"] = opcode.cta_group;
  out["ws"] = opcode.ws;
  out["scale_vec"] = opcode.scale_vec;
  out["collector"] = collectors[static_cast<int>(opcode.collector)];
  out["collector_buffer"] = opcode.collector_buffer;
  return out;
}

py::dict shared_descriptor(uint64_t word) {
  const model::SharedDescriptor d = model::decode_shared_descriptor(word, "shared");
  py::dict out;
  out["start"] = d.start;
  out["ldo"] = d.ldo;
  out["sdo"] = d.sdo;
  out["swizzle"] = d.swizzle;
  return out;
}

py::dict instruction_descriptor(const std::string& kind, uint32_t word) {
  const model::InstructionDescriptor d = model::decode_instruction_descriptor(kind_of(kind), word);
  py::dict out;
  out["M"] = d.m;
  out["N"] = d.n;
  out["a_format"] = d.a_format;
  out["b_format"] = d.b_format;
  out["d_format"] = d.d_format;
  out["sparse"] = d.sparse;
  out["sat_d"] = d.saturate;
  out["neg_a"] = d.negate_a;
  out["neg_b"] = d.negate_b;
  out["a_mn_major"] = d.a_mn_major;
  out["b_mn_major"] = d.b_mn_major;
  out["max_shift"] = d.max_shift;
  out["scale_type"] = d.scale_type;
  out["sfa_id"] = d.sfa_id;
  out["sfb_id"] = d.sfb_id;
  out["k96"] = d.k96 != 0;
  return out;
}

// Which of the first `columns` columns of sub-mask `bank` read B as zero.
std::vector<bool> zeroed_columns(uint64_t word, int bank, int columns) {
  if (bank < 0 || bank > 3) throw std::invalid_argument("bank must be 0 to 3");
  const model::ZeroColumnMask mask = model::decode_zero_column_mask(word);
  std::vector<bool> zeroed;
  for (int column = 0; column < columns; ++column) zeroed.push_back(mask.zeroed(bank, column));
  return zeroed;
}

Mma make_mma(const std::string& opcode, uint32_t idesc, uint64_t a, uint64_t b, uint32_t d, uint32_t sfa,
             uint32_t sfb, bool a_in_tmem, bool enable_input_d,
             const std::vector<uint32_t>& disable_output_lane, uint64_t zero_column_mask) {
  Mma mma;
  mma.opcode = parse_opcode(opcode);
  mma.idesc = idesc;
  mma.a_in_tmem = a_in_tmem;
  mma.a = a;
  mma.b = b;
  mma.d = d;
  mma.sfa = sfa;
  mma.sfb = sfb;
  mma.enable_input_d = enable_input_d;
  if (disable_output_lane.size() > 8) throw std::invalid_argument("disable_output_lane: at most 8 words");
  std::copy(disable_output_lane.begin(), disable_output_lane.end(), mma.disable_output_lane);
  mma.zero_column_mask = zero_column_mask;
  return mma;
}

// The memories of the CTAs of one issue, from NumPy arrays: shared uint8 (bytes,), tmem uint32 (128, 512).
std::vector<CtaMemory> memories(const Mma& mma, std::vector<Array<uint8_t>>& shared,
                                std::vector<Array<uint32_t>>& tmem) {
  const size_t ctas = static_cast<size_t>(mma.opcode.cta_group);
  if (shared.size() != ctas || tmem.size() != ctas) {
    throw std::invalid_argument("shared and tmem: one array per CTA of the group, " + std::to_string(ctas));
  }
  std::vector<CtaMemory> out;
  for (size_t cta = 0; cta < ctas; ++cta) {
    if (tmem[cta].size() != model::kLanes * model::kColumns)
      throw std::invalid_argument("tmem: shape (128, 512)");
    out.push_back(
        {shared[cta].mutable_data(), static_cast<uint32_t>(shared[cta].size()), tmem[cta].mutable_data()});
  }
  return out;
}

struct Recorder : model::Footprint {
  std::vector<std::tuple<int, uint32_t, uint32_t>> shared;
  std::vector<std::tuple<int, int, int, int>> reads, writes;
  void shared_read(int cta, uint32_t address, uint32_t bytes) override {
    shared.push_back({cta, address, bytes});
  }
  void tmem_read(int cta, int lane, int column, int columns) override {
    reads.push_back({cta, lane, column, columns});
  }
  void tmem_write(int cta, int lane, int column, int columns) override {
    writes.push_back({cta, lane, column, columns});
  }
};

Converted<uint32_t> dots(const std::string& a_format, const std::string& b_format,
                         const std::string& d_format, const std::string& scale_format, int scale_block,
                         bool grouped, bool saturate, Converted<uint32_t> a, Converted<uint32_t> b,
                         Converted<uint32_t> c, Converted<uint8_t> sfa, Converted<uint8_t> sfb) {
  model::Arithmetic arithmetic;
  arithmetic.a = format_of(a_format);
  arithmetic.b = format_of(b_format);
  arithmetic.d = d_format == "float32"   ? model::Accumulator::f32
                 : d_format == "float16" ? model::Accumulator::f16
                                         : model::Accumulator::s32;
  arithmetic.scale = scale_format == "float8_e8m0fnu"  ? model::ScaleFormat::ue8m0
                     : scale_format == "float8_e4m3fn" ? model::ScaleFormat::ue4m3
                                                       : model::ScaleFormat::none;
  const py::ssize_t cases = c.size(), k = cases == 0 ? 0 : a.size() / cases;
  arithmetic.k = static_cast<int>(k);
  arithmetic.scale_block = scale_block;
  arithmetic.grouped = grouped;
  arithmetic.saturate = saturate;
  const py::ssize_t scales = arithmetic.scales();
  if (k > model::kMaxK || a.size() != cases * k || b.size() != cases * k || sfa.size() < cases * scales ||
      sfb.size() < cases * scales) {
    throw std::invalid_argument("dots: a, b (cases, K), c (cases,), sfa, sfb (cases, K / scale_block)");
  }
  Converted<uint32_t> out(cases);
  for (py::ssize_t i = 0; i < cases; ++i) {
    out.mutable_data()[i] = model::dot(arithmetic, a.data() + i * k, b.data() + i * k, c.data()[i],
                                       sfa.data() + i * scales, sfb.data() + i * scales);
  }
  return out;
}

using Lists = std::map<std::string, Array<int64_t>>;

Plan plan_of(const std::string& opcode, int64_t idesc, int64_t shared_bytes, int64_t tmem_columns,
             const Lists& lists) {
  const auto list = [&](const char* name) {
    const auto found = lists.find(name);
    if (found == lists.end()) return Int64s{};
    return Int64s{found->second.data(), static_cast<size_t>(found->second.size())};
  };
  PlanAttributes attributes;
  attributes.opcode = opcode;
  attributes.idesc = idesc;
  attributes.shared_bytes = shared_bytes;
  attributes.tmem_columns = tmem_columns;
  attributes.repeats = list("repeats");
  attributes.d_starts = list("d_starts");
  attributes.a_starts = list("a_starts");
  attributes.b_starts = list("b_starts");
  attributes.sfa_starts = list("sfa_starts");
  attributes.sfb_starts = list("sfb_starts");
  attributes.d_place = list("d_place");
  attributes.a_place = list("a_place");
  attributes.b_place = list("b_place");
  attributes.sfa_place = list("sfa_place");
  attributes.sfb_place = list("sfb_place");
  return decode_plan(attributes);
}

// Arrays of bytes (cta_group, elements * item_bytes) per operand; returns D's bytes.
Array<uint8_t> run(const std::string& opcode, int64_t idesc, int64_t shared_bytes, int64_t tmem_columns,
                   const Lists& lists, const std::map<std::string, Array<uint8_t>>& arrays, bool accum,
                   bool pred, const std::vector<uint32_t>& disable_output_lane, uint64_t zero_column_mask) {
  const model::PreparedPlan prepared(plan_of(opcode, idesc, shared_bytes, tmem_columns, lists));
  const Plan& plan = prepared.plan();
  const int ctas = plan.opcode.cta_group;
  const auto share = [&](const char* name, const Placement& place, const uint8_t** out) {
    const auto found = arrays.find(name);
    const int64_t bytes = place.elements() * place.item_bytes;
    if (found == arrays.end() || found->second.size() != ctas * bytes) {
      throw std::invalid_argument(std::string(name) + ": expected " + std::to_string(ctas * bytes) +
                                  " bytes");
    }
    for (int cta = 0; cta < ctas; ++cta) out[cta] = found->second.data() + cta * bytes;
    return bytes;
  };
  model::Operands operands;
  const int64_t d_bytes = share("d", plan.d, operands.d_in);
  share("a", plan.a, operands.a);
  share("b", plan.b, operands.b);
  if (plan.opcode.block_scaled()) {
    share("sfa", plan.sfa, operands.sfa);
    share("sfb", plan.sfb, operands.sfb);
  }
  Array<uint8_t> out(ctas * d_bytes);
  for (int cta = 0; cta < ctas; ++cta) operands.d_out[cta] = out.mutable_data() + cta * d_bytes;
  operands.accum = accum;
  operands.pred = pred;
  if (!disable_output_lane.empty()) {
    if (disable_output_lane.size() != static_cast<size_t>(4 * ctas)) {
      throw std::invalid_argument("disable_output_lane: 4 words per CTA");
    }
    operands.disable_output_lane = disable_output_lane.data();
  }
  operands.zero_column_mask = zero_column_mask;
  model::Workspace(prepared).run(operands);
  return out;
}

}  // namespace

void bind_model(py::module_& m) {
  using namespace py::literals;
  m.def(
      "parse_opcode", [](const std::string& text) { return opcode_dict(parse_opcode(text)); }, "text"_a,
      "Fields of an opcode as the executors read it; ValueError for what `mma` does not offer.");
  m.def("decode_shared_descriptor", &shared_descriptor, "word"_a,
        "Byte fields and swizzle mode of a descriptor.");
  m.def("decode_instruction_descriptor", &instruction_descriptor, "kind"_a, "word"_a,
        "Raw fields of a 32-bit instruction descriptor, by the table of `kind`.");
  m.def("zeroed_columns", &zeroed_columns, "word"_a, "bank"_a, "columns"_a,
        "Which of the first columns of a sub-mask a zero-column mask zeroes.");
  m.def("dots", &dots, "a_format"_a, "b_format"_a, "d_format"_a, "scale_format"_a, "scale_block"_a,
        "grouped"_a, "saturate"_a, "a"_a, "b"_a, "c"_a, "sfa"_a, "sfb"_a,
        "D bits of single dot products: codes a, b (cases, K), accumulator bits c (cases,).");

  const char* issue = "One raw issue; ValueError with the rule when it is illegal or leaves a memory.";
  m.def(
      "mma_resolve",
      [](const std::string& opcode, uint32_t idesc, uint64_t a, uint64_t b, bool a_in_tmem) {
        model::resolve(make_mma(opcode, idesc, a, b, 0, 0, 0, a_in_tmem, true, {}, 0));
      },
      "opcode"_a, "idesc"_a, "a"_a, "b"_a, "a_in_tmem"_a = false,
      "Judges opcode, instruction descriptor and shared descriptors, without addresses; ValueError with the "
      "rule.");
  m.def(
      "mma_execute",
      [](std::vector<Array<uint8_t>> shared, std::vector<Array<uint32_t>> tmem, const std::string& opcode,
         uint32_t idesc, uint64_t a, uint64_t b, uint32_t d, uint32_t sfa, uint32_t sfb, bool a_in_tmem,
         bool enable_input_d, const std::vector<uint32_t>& disable_output_lane, uint64_t zero_column_mask) {
        const Mma mma = make_mma(opcode, idesc, a, b, d, sfa, sfb, a_in_tmem, enable_input_d,
                                 disable_output_lane, zero_column_mask);
        std::vector<CtaMemory> ctas = memories(mma, shared, tmem);
        model::execute(mma, ctas.data());
      },
      "shared"_a, "tmem"_a, "opcode"_a, "idesc"_a, "a"_a, "b"_a, "d"_a, "sfa"_a = 0, "sfb"_a = 0,
      "a_in_tmem"_a = false, "enable_input_d"_a = true, "disable_output_lane"_a = std::vector<uint32_t>{},
      "zero_column_mask"_a = 0, issue);
  m.def(
      "mma_footprint",
      [](std::vector<Array<uint8_t>> shared, std::vector<Array<uint32_t>> tmem, const std::string& opcode,
         uint32_t idesc, uint64_t a, uint64_t b, uint32_t d, uint32_t sfa, uint32_t sfb, bool a_in_tmem,
         bool enable_input_d, const std::vector<uint32_t>& disable_output_lane, uint64_t zero_column_mask) {
        const Mma mma = make_mma(opcode, idesc, a, b, d, sfa, sfb, a_in_tmem, enable_input_d,
                                 disable_output_lane, zero_column_mask);
        Recorder recorder;
        model::footprint(mma, memories(mma, shared, tmem).data(), recorder);
        py::dict out;
        out["shared_read"] = recorder.shared;
        out["tmem_read"] = recorder.reads;
        out["tmem_write"] = recorder.writes;
        return out;
      },
      "shared"_a, "tmem"_a, "opcode"_a, "idesc"_a, "a"_a, "b"_a, "d"_a, "sfa"_a = 0, "sfb"_a = 0,
      "a_in_tmem"_a = false, "enable_input_d"_a = true, "disable_output_lane"_a = std::vector<uint32_t>{},
      "zero_column_mask"_a = 0,
      "What the issue touches: (cta, address, bytes) and (cta, lane, column, columns).");
  m.def(
      "check_plan",
      [](const std::string& opcode, int64_t idesc, int64_t shared_bytes, int64_t tmem_columns,
         const Lists& lists) {
        model::PreparedPlan(plan_of(opcode, idesc, shared_bytes, tmem_columns, lists));
      },
      "opcode"_a, "idesc"_a, "shared_bytes"_a, "tmem_columns"_a, "lists"_a,
      "Decodes and judges a Plan's attributes and all its issues; ValueError names the attribute.");
  m.def("run_plan", &run, "opcode"_a, "idesc"_a, "shared_bytes"_a, "tmem_columns"_a, "lists"_a, "arrays"_a,
        "accum"_a = false, "pred"_a = true, "disable_output_lane"_a = std::vector<uint32_t>{},
        "zero_column_mask"_a = 0,
        "One batch element of a Plan on the model; arrays as bytes, returns D's bytes.");
}

}  // namespace tcgen05

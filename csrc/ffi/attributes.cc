#include "ffi/attributes.h"

#include <stdexcept>

namespace tcgen05 {
namespace {

namespace ffi = xla::ffi;

template <typename T>
T attribute(ffi::Dictionary& attributes, const char* name, const char* type) {
  auto value = attributes.get<T>(name);
  if (!value.has_value())
    throw std::invalid_argument("attribute \"" + std::string(name) + "\": missing, or not " + type);
  return *value;
}

Int64s integers(ffi::Dictionary& attributes, const char* name) {
  const auto span = attribute<ffi::Span<const int64_t>>(attributes, name, "an array of int64");
  return {span.begin(), span.size()};
}

int64_t integer(ffi::Dictionary& attributes, const char* name) {
  return attribute<int64_t>(attributes, name, "an int64");
}

// XLA packs arrays of these types, so that an entry has no byte of its own.
bool is_packed(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::S1:
    case ffi::DataType::S2:
    case ffi::DataType::S4:
    case ffi::DataType::U1:
    case ffi::DataType::U2:
    case ffi::DataType::U4:
    case ffi::DataType::F4E2M1FN:
      return true;
    default:
      return false;
  }
}

Buffer buffer(const std::string& name, const ffi::AnyBuffer& given) {
  if (is_packed(given.element_type()))
    throw std::invalid_argument(name +
                                ": got an array of a sub-byte type; expected one code per byte (uint8)");
  const auto dims = given.dimensions();
  return {given.untyped_data(), static_cast<int64_t>(ffi::ByteWidth(given.element_type())),
          std::vector<int64_t>(dims.begin(), dims.end())};
}

}  // namespace

Plan read_plan(ffi::Dictionary attributes) {
  PlanAttributes out;
  out.opcode = attribute<std::string_view>(attributes, "opcode", "a string");
  out.idesc = integer(attributes, "idesc");
  out.shared_bytes = integer(attributes, "shared_bytes");
  out.tmem_columns = integer(attributes, "tmem_columns");
  out.repeats = integers(attributes, "repeats");
  out.d_starts = integers(attributes, "d_starts");
  out.a_starts = integers(attributes, "a_starts");
  out.b_starts = integers(attributes, "b_starts");
  out.sfa_starts = integers(attributes, "sfa_starts");
  out.sfb_starts = integers(attributes, "sfb_starts");
  out.d_place = integers(attributes, "d_place");
  out.a_place = integers(attributes, "a_place");
  out.b_place = integers(attributes, "b_place");
  out.sfa_place = integers(attributes, "sfa_place");
  out.sfb_place = integers(attributes, "sfb_place");
  return decode_plan(out);
}

std::string read_executor(ffi::Dictionary attributes) {
  const std::string executor(attribute<std::string_view>(attributes, "executor", "a string"));
  if (executor != "model" && executor != "vsm" && executor != "vsm-strict")
    throw std::invalid_argument("attribute \"executor\": got \"" + executor +
                                "\"; allowed: model, vsm, vsm-strict");
  return executor;
}

Arrays read_arrays(const Plan& plan, ffi::RemainingArgs arguments, ffi::RemainingRets results) {
  std::vector<Buffer> buffers;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto given = arguments.get<ffi::AnyBuffer>(i);
    if (!given.has_value()) throw std::invalid_argument("argument " + std::to_string(i) + " is no buffer");
    buffers.push_back(buffer("argument " + std::to_string(i), *given));
  }
  if (results.size() != 1)
    throw std::invalid_argument("got " + std::to_string(results.size()) + " results; expected one, D");
  auto result = results.get<ffi::AnyBuffer>(0);
  if (!result.has_value()) throw std::invalid_argument("the result is no buffer");
  return bind_arrays(plan, buffers, buffer("result", *result.value()));
}

}  // namespace tcgen05

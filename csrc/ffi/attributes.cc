#include "ffi/attributes.h"

#include <stdexcept>

#include "plan/decode.h"

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

std::vector<int64_t> integers(ffi::Dictionary& attributes, const std::string& name) {
  const auto span = attribute<ffi::Span<const int64_t>>(attributes, name.c_str(), "an array of int64");
  return std::vector<int64_t>(span.begin(), span.end());
}

int64_t integer(ffi::Dictionary& attributes, const char* name) {
  return attribute<int64_t>(attributes, name, "an int64");
}

// Sizes of a buffer; XLA's packed sub-byte types have none and never come here (codes are uint8).
Buffer buffer(const ffi::AnyBuffer& given) {
  const auto dims = given.dimensions();
  return {given.untyped_data(), static_cast<int64_t>(ffi::ByteWidth(given.element_type())),
          std::vector<int64_t>(dims.begin(), dims.end())};
}

}  // namespace

Plan read_plan(ffi::Dictionary attributes) {
  PlanAttributes out;
  out.opcode = std::string(attribute<std::string_view>(attributes, "opcode", "a string"));
  out.idesc = integer(attributes, "idesc");
  out.shared_bytes = integer(attributes, "shared_bytes");
  out.tmem_columns = integer(attributes, "tmem_columns");
  out.repeats = integers(attributes, "repeats");
  for (size_t i = 0; i < kOperandNames.size(); ++i) {
    const std::string name(kOperandNames[i]);
    out.places[i] = integers(attributes, name + "_place");
    out.starts[i] = integers(attributes, name + "_starts");
  }
  return decode_plan(out);
}

std::string read_executor(ffi::Dictionary attributes) {
  const std::string executor(attribute<std::string_view>(attributes, "executor", "a string"));
  if (executor != "model" && executor != "vsm")
    throw std::invalid_argument("attribute \"executor\": got \"" + executor + "\"; allowed: model, vsm");
  return executor;
}

Arrays read_arrays(const Plan& plan, ffi::RemainingArgs arguments, ffi::RemainingRets results) {
  std::vector<Buffer> buffers;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto given = arguments.get<ffi::AnyBuffer>(i);
    if (!given.has_value()) throw std::invalid_argument("argument " + std::to_string(i) + " is no buffer");
    buffers.push_back(buffer(*given));
  }
  const auto result = results.size() == 1 ? results.get<ffi::AnyBuffer>(0) : ffi::ErrorOr<ffi::Result<ffi::AnyBuffer>>(ffi::Unexpected(ffi::Error::InvalidArgument("")));
  if (!result.has_value()) throw std::invalid_argument("expected one result, D");
  return bind_arrays(plan, buffers, buffer(**result));
}

}  // namespace tcgen05

#include "plan/arrays.h"

#include <stdexcept>
#include <string>

namespace tcgen05 {
namespace {

std::string text(const std::vector<int64_t>& dims) {
  std::string out = "(";
  for (size_t i = 0; i < dims.size(); ++i) out += (i ? ", " : "") + std::to_string(dims[i]);
  return out + ")";
}

[[noreturn]] void refuse(const char* name, const Buffer& buffer, const std::string& rule) {
  throw std::invalid_argument(std::string(name) + ": got a buffer of shape " + text(buffer.dims) + " with " +
                              std::to_string(buffer.item_bytes) + "-byte items; " + rule);
}

// Row-major byte strides; a product beyond 2^62 is refused, so later arithmetic cannot overflow.
std::vector<int64_t> strides_of(const char* name, const Buffer& buffer) {
  std::vector<int64_t> strides(buffer.dims.size());
  __int128 stride = buffer.item_bytes;
  for (size_t i = buffer.dims.size(); i-- > 0;) {
    if (buffer.dims[i] < 0) refuse(name, buffer, "sizes are not negative");
    strides[i] = static_cast<int64_t>(stride);
    stride *= buffer.dims[i] > 0 ? buffer.dims[i] : 1;
    if (stride > (__int128{1} << 62)) refuse(name, buffer, "too large");
  }
  return strides;
}

// `group`: sizes allowed for the execution-group axis (none without one).
Array bind(const char* name, const Buffer& buffer, int64_t item_bytes, const std::vector<int64_t>& group,
           const std::vector<int64_t>& batch, const std::vector<int64_t>& own) {
  const size_t group_axes = group.empty() ? 0 : 1;
  if (buffer.item_bytes != item_bytes)
    refuse(name, buffer, "expected " + std::to_string(item_bytes) + "-byte items");
  if (buffer.dims.size() != group_axes + batch.size() + own.size())
    refuse(name, buffer,
           "expected " + std::to_string(group_axes) + " execution-group, " + std::to_string(batch.size()) +
               " batch and " + std::to_string(own.size()) + " own axes");
  const std::vector<int64_t> strides = strides_of(name, buffer);
  Array array;
  array.data = static_cast<char*>(buffer.data);
  array.bytes = buffer.item_bytes;
  for (int64_t size : buffer.dims) array.bytes *= size;  // strides_of checked the product
  if (group_axes) {
    bool allowed = false;
    for (int64_t size : group) allowed |= buffer.dims[0] == size;
    if (!allowed) refuse(name, buffer, "the execution-group axis has another size");
    array.group_stride = buffer.dims[0] == 1 ? 0 : strides[0];
  }
  for (size_t i = 0; i < batch.size(); ++i) {
    const int64_t size = buffer.dims[group_axes + i];
    if (size != batch[i] && size != 1) refuse(name, buffer, "the batch is " + text(batch));
    array.batch_strides.push_back(size == 1 ? 0 : strides[group_axes + i]);
  }
  for (size_t i = 0; i < own.size(); ++i)
    if (buffer.dims[group_axes + batch.size() + i] != own[i])
      refuse(name, buffer, "the plan places an array of shape " + text(own));
  return array;
}

std::vector<int64_t> sizes_of(const Placement& placement) {
  std::vector<int64_t> sizes;
  for (const Axis& axis : placement.axes) sizes.push_back(axis.size);
  return sizes;
}

}  // namespace

char* Array::at(int cta, const std::vector<int64_t>& index) const {
  int64_t offset = cta * group_stride;
  for (size_t i = 0; i < index.size(); ++i) offset += index[i] * batch_strides[i];
  return data + offset;
}

std::vector<int64_t> Arrays::coordinates(int64_t n) const {
  std::vector<int64_t> index(batch.size());
  for (size_t i = batch.size(); i-- > 0;) {
    index[i] = n % batch[i];
    n /= batch[i];
  }
  return index;
}

bool has_mask(const Plan& plan, size_t arguments) {
  const bool scaled = plan.opcode.block_scaled();
  const size_t unmasked = scaled ? 7 : 5;
  if (arguments == unmasked) return false;
  if (!scaled && arguments == unmasked + 1) return true;
  throw std::invalid_argument(
      "got " + std::to_string(arguments) + " arguments; expected " +
      (scaled ? "7: d, a, b, sfa, sfb, accum, pred" : "5 or 6: d, a, b, accum, pred[, mask]"));
}

Arrays bind_arrays(const Plan& plan, const std::vector<Buffer>& arguments, const Buffer& result) {
  const bool scaled = plan.opcode.block_scaled();
  const size_t operands = scaled ? 5 : 3;
  const bool masked = has_mask(plan, arguments.size());
  const std::vector<int64_t> pair =
      plan.opcode.cta_group == 2 ? std::vector<int64_t>{2} : std::vector<int64_t>{};
  const size_t group_axes = pair.size();

  Arrays out;
  const Buffer& d = arguments[0];
  const std::vector<int64_t> d_own = sizes_of(plan.d);
  if (d.dims.size() < group_axes + d_own.size()) refuse("d", d, "too few axes for its placement");
  out.batch.assign(d.dims.begin() + group_axes, d.dims.end() - d_own.size());
  out.d_in = bind("d", d, plan.d.item_bytes, pair, out.batch, d_own);
  out.d_out = bind("result", result, plan.d.item_bytes, pair, out.batch, d_own);
  if (result.dims != d.dims) refuse("result", result, "it has the shape of d, " + text(d.dims));
  for (int64_t size : out.batch) out.batch_size *= size;  // cannot overflow: strides_of(d) did not

  out.a = bind("a", arguments[1], plan.a.item_bytes, pair, out.batch, sizes_of(plan.a));
  out.b = bind("b", arguments[2], plan.b.item_bytes, pair, out.batch, sizes_of(plan.b));
  if (scaled) {
    const std::vector<int64_t> any = pair.empty() ? pair : std::vector<int64_t>{1, 2};
    out.sfa = bind("sfa", arguments[3], plan.sfa.item_bytes, pair, out.batch, sizes_of(plan.sfa));
    out.sfb = bind("sfb", arguments[4], plan.sfb.item_bytes, any, out.batch, sizes_of(plan.sfb));
  }
  out.accum = bind("accum", arguments[operands], 1, {}, out.batch, {});
  out.pred = bind("pred", arguments[operands + 1], 1, {}, out.batch, {});
  out.masked = masked;
  if (out.masked) {
    const int64_t words = plan.opcode.ws ? 2 : 4 * plan.opcode.cta_group;
    out.mask = bind("mask", arguments[operands + 2], 4, {}, out.batch, {words});
  }
  return out;
}

}  // namespace tcgen05

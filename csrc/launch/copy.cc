#include "launch/copy.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

namespace tcgen05::launch {
namespace {

// One axis of the walk, digits innermost first. An exact axis has one digit whose extent is its size.
struct Walk {
  int64_t size;
  std::vector<Digit> digits;
};

Walk exact(Digit digit) { return {digit.extent, {digit}}; }

// The axes of a placement, innermost first, as few as possible.
std::vector<Walk> axes_of(const Placement& placement) {
  std::vector<Walk> out;
  for (size_t i = placement.axes.size(); i-- > 0;) {
    const Axis& axis = placement.axes[i];
    std::vector<Digit> digits;
    int64_t held = 1;  // entries that the digits so far can hold
    for (size_t j = axis.digits.size(); j-- > 0 && held < axis.size;) {
      if (axis.digits[j].extent == 1) continue;
      digits.push_back(axis.digits[j]);
      held *= axis.digits[j].extent;
    }
    if (digits.empty()) continue;
    // A bound that cuts only the outermost digit is that digit's extent.
    const int64_t inner = held / digits.back().extent;
    if (axis.size % inner == 0) {
      digits.back().extent = axis.size / inner;
      for (const Digit& digit : digits) out.push_back(exact(digit));
    } else {
      out.push_back({axis.size, digits});
    }
  }
  return out;
}

void fuse(std::vector<Walk>& axes) {
  for (size_t i = 0; i + 1 < axes.size();) {
    Walk& inner = axes[i];
    const Walk& outer = axes[i + 1];
    if (inner.digits.size() == 1 && outer.digits.size() == 1 &&
        outer.digits[0].first == inner.digits[0].first * inner.size &&
        outer.digits[0].second == inner.digits[0].second * inner.size) {
      inner = exact({inner.size * outer.size, inner.digits[0].first, inner.digits[0].second});
      axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    } else {
      ++i;
    }
  }
}

bool divides(int64_t divisor, int64_t value) { return value % divisor == 0; }

// The placement in one form for both storages: lane strides and offset strides, in elements.
struct Form {
  std::vector<Walk> axes;  // digit.first in lanes, digit.second in elements
  std::vector<Walk> replicas;
  int64_t origin_lane, origin, base;  // base in elements
};

Form form_of(const Placement& placement) {
  Form out;
  out.axes = axes_of(placement);
  for (size_t i = placement.replicas.size(); i-- > 0;)
    if (placement.replicas[i].extent > 1) out.replicas.push_back(exact(placement.replicas[i]));
  out.origin_lane = placement.origin_first;
  out.origin = placement.origin_second;
  if (placement.storage == Storage::shared) {
    for (std::vector<Walk>* walks : {&out.axes, &out.replicas})
      for (Walk& walk : *walks)
        for (Digit& digit : walk.digits) digit = {digit.extent, 0, digit.first};
    out.origin_lane = 0;
    out.origin = placement.origin_first;
    out.base = placement.base * 8 / placement.bits;
  } else {
    out.base = placement.base * 32 / placement.bits;
  }
  fuse(out.axes);
  return out;
}

// Whether `count` neighbours of the source are neighbours in the storage, on a boundary of `count`.
bool together(const Placement& placement, const Form& form, int64_t count) {
  if (form.axes.empty()) return false;
  const Walk& inner = form.axes[0];
  const Digit& first = inner.digits[0];
  if (first.first != 0 || first.second != 1) return false;
  if (!divides(count, inner.size) || !divides(count, first.extent)) return false;
  if (!divides(count, form.origin) || !divides(count, form.base)) return false;
  for (const std::vector<Walk>* walks : {&form.axes, &form.replicas})
    for (const Walk& walk : *walks)
      for (const Digit& digit : walk.digits)
        if (&digit != &first && !divides(count, digit.second)) return false;
  const int64_t mask = placement.swizzle_mask, shift = placement.swizzle_shift;
  return divides(count, mask) && (shift >= 0 || divides(count, mask << -shift));
}

void cut(Form& form, int64_t count) {  // pieces of `count` become the elements
  form.axes[0].size /= count;
  form.axes[0].digits[0].extent /= count;
  form.axes[0].digits[0].second = count;
}

// Writes the steps; offsets of `scale` units per `per` elements.
void write_steps(Copy& copy, const Form& form, int64_t scale, int64_t per) {
  const auto units = [&](int64_t elements) { return static_cast<uint32_t>(elements * scale / per); };
  copy.origin_lane = static_cast<uint32_t>(form.origin_lane);
  copy.origin_offset = units(form.origin);
  copy.base = units(form.base);
  int64_t chunks = 1, copies = 1;
  for (const Walk& axis : form.axes) chunks *= axis.size;
  for (const Walk& axis : form.replicas) copies *= axis.size;
  copy.chunks = static_cast<uint32_t>(chunks);
  copy.work = static_cast<uint32_t>(chunks * copies);
  for (const std::vector<Walk>* walks : {&form.axes, &form.replicas}) {
    for (const Walk& walk : *walks) {
      for (size_t i = 0; i < walk.digits.size(); ++i) {
        if (copy.steps == kMaxSteps)
          throw std::invalid_argument("a placement has more than " + std::to_string(kMaxSteps) +
                                      " digits that cannot be merged; a device kernel walks no more");
        const Digit& digit = walk.digits[i];
        const bool last = i + 1 == walk.digits.size();
        copy.step[copy.steps++] = {i == 0 ? static_cast<uint32_t>(walk.size) : 0,
                                   last ? 0 : static_cast<uint32_t>(digit.extent),
                                   static_cast<uint32_t>(digit.first), units(digit.second)};
      }
    }
  }
}

CopyMode item_mode(int64_t item_bytes) {
  return item_bytes == 4 ? CopyMode::bytes4 : item_bytes == 2 ? CopyMode::bytes2 : CopyMode::bytes1;
}

}  // namespace

Copy make_copy(const Placement& placement, bool aligned) {
  const bool tmem = placement.storage == Storage::tmem;
  const bool fp6 = placement.packing == Packing::fp6, fp4 = placement.packing == Packing::fp4;
  const bool container = !tmem && (fp6 || fp4);
  const bool nibbles = placement.bits == 4;
  const int64_t count = nibbles ? 32 : 16 / placement.item_bytes;  // items in 16 bytes of storage

  Copy copy{};
  copy.keep = fp6 ? 0x3f3f3f3fu : fp4 || nibbles ? 0x0f0f0f0fu : ~0u;
  copy.shift = tmem && fp4 ? 2 : 0;
  copy.swizzle_shift = static_cast<int32_t>(placement.swizzle_shift);
  Form form = form_of(placement);
  const bool wide = aligned && together(placement, form, count);
  if (wide) cut(form, count);

  if (!wide && (container || nibbles)) {  // offsets count elements: a bit has no address
    copy.mode = CopyMode::bits;
    copy.source_bytes = 1;
    copy.block_bits = fp6 ? 6 : 4;
    copy.block_log2 = nibbles ? 5 : 4;
    copy.swizzle_mask = static_cast<uint32_t>(placement.swizzle_mask);
    write_steps(copy, form, 1, 1);
    return copy;
  }
  copy.mode = !wide        ? item_mode(placement.item_bytes)
              : nibbles    ? CopyMode::nibbles
              : !container ? CopyMode::bytes16
              : fp6        ? CopyMode::pack_fp6
                           : CopyMode::pack_fp4;
  copy.source_bytes = static_cast<uint32_t>(placement.item_bytes * (wide ? count : 1));
  copy.swizzle_mask = static_cast<uint32_t>(placement.swizzle_mask * placement.bits / 8);
  write_steps(copy, form, placement.bits, 8);
  return copy;
}

}  // namespace tcgen05::launch

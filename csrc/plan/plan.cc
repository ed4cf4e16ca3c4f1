#include "plan/plan.h"

#include <algorithm>
#include <stdexcept>

namespace tcgen05 {
namespace {

constexpr int64_t kMaxDigits = 16;           // axes, digits of an axis, and replica digits, each
constexpr int64_t kMaxCoordinate = 1 << 24;  // strides, origins and extents: sums of products stay below 2^63

[[noreturn]] void refuse(const std::string& name, const std::string& rule) {
  throw std::invalid_argument("plan attribute " + name + ": " + rule);
}

// Reads a placement's list, number by number.
class Reader {
 public:
  Reader(const char* name, Int64s list) : name_(name), list_(list) {}

  int64_t next(const char* what, int64_t low, int64_t high) {
    if (at_ == list_.size) refuse(name_, std::string("ends before ") + what);
    const int64_t value = list_.data[at_++];
    if (value < low || value > high) {
      refuse(name_, std::string(what) + " is " + std::to_string(value) + ", allowed: " + std::to_string(low) +
                        " to " + std::to_string(high));
    }
    return value;
  }

  std::vector<Digit> digits(const char* what) {
    std::vector<Digit> digits(static_cast<size_t>(next(what, 0, kMaxDigits)));
    for (Digit& digit : digits) {
      digit.extent = next("a digit's extent", 1, kMaxCoordinate);
      digit.first = next("a digit's first stride", -kMaxCoordinate, kMaxCoordinate);
      digit.second = next("a digit's second stride", -kMaxCoordinate, kMaxCoordinate);
    }
    return digits;
  }

  void end() const {
    if (at_ != list_.size) refuse(name_, std::to_string(list_.size - at_) + " numbers too many");
  }

 private:
  const char* name_;
  Int64s list_;
  size_t at_ = 0;
};

// Offsets of one coordinate, in both directions of the storage.
struct Offset {
  int64_t first = 0, second = 0;
};

Offset offset_of(const Axis& axis, int64_t index) {
  Offset offset;
  for (auto digit = axis.digits.rbegin(); digit != axis.digits.rend(); ++digit) {
    offset.first += index % digit->extent * digit->first;
    offset.second += index % digit->extent * digit->second;
    index /= digit->extent;
  }
  return offset;
}

struct Range {
  int64_t low = 0, high = 0;
  void include(int64_t value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  void add(const Range& other) {
    low += other.low;
    high += other.high;
  }
};

struct Extent {
  Range first, second;
};

// Exact ranges of the linear offsets: axes are independent, a bounded axis is enumerated.
Extent extent_of(const Placement& place) {
  Extent total;
  total.first = {place.origin_first, place.origin_first};
  total.second = {place.origin_second, place.origin_second};
  for (const Axis& axis : place.axes) {
    Extent own;
    for (int64_t index = 0; index < axis.size; ++index) {
      const Offset offset = offset_of(axis, index);
      own.first.include(offset.first);
      own.second.include(offset.second);
    }
    total.first.add(own.first);
    total.second.add(own.second);
  }
  for (const Digit& digit : place.replicas) {
    Extent own;
    own.first.include((digit.extent - 1) * digit.first);
    own.second.include((digit.extent - 1) * digit.second);
    total.first.add(own.first);
    total.second.add(own.second);
  }
  return total;
}

int64_t swizzle(const Placement& place, int64_t x) {
  return place.swizzle_shift >= 0 ? x ^ ((x >> place.swizzle_shift) & place.swizzle_mask)
                                  : x ^ ((x & place.swizzle_mask) << -place.swizzle_shift);
}

// The largest permuted offset, element by element: only needed where the bits that the swizzle may set
// could leave the allocation.
int64_t largest_swizzled(const Placement& place) {
  int64_t largest = 0;
  const int64_t count = place.elements();
  for (int64_t entry = 0; entry < count; ++entry) {
    int64_t rest = entry, x = place.origin_first;
    for (auto axis = place.axes.rbegin(); axis != place.axes.rend(); ++axis) {
      x += offset_of(*axis, rest % axis->size).first;
      rest /= axis->size;
    }
    largest = std::max(largest, swizzle(place, x));
  }
  return largest;
}

void check_shared(const char* name, const Placement& place) {
  const Range range = extent_of(place).first;
  if (place.elements() == 0) return;
  // A padded FP6/FP4 container holds element x in block x / 16 of 16 bytes: x counts nominal bytes.
  const int64_t capacity = place.size * 8 / place.bits;
  const int64_t bits =
      place.swizzle_shift >= 0 ? place.swizzle_mask : place.swizzle_mask << -place.swizzle_shift;
  if (range.low >= 0 && (range.high | bits) < capacity) return;
  if (range.low >= 0 && range.high < 2 * kSharedBudget && largest_swizzled(place) < capacity) return;
  refuse(name, "elements " + std::to_string(range.low) + " to " + std::to_string(range.high) +
                   " (before the swizzle) leave the allocation of " + std::to_string(place.size) + " bytes");
}

void check_tmem(const char* name, const Placement& place) {
  const Extent extent = extent_of(place);
  if (place.elements() == 0) return;
  const int64_t per_lane = place.size * 32 / place.bits;
  if (extent.first.low < 0 || extent.first.high >= kTmemLanes) {
    refuse(name, "lanes " + std::to_string(extent.first.low) + " to " + std::to_string(extent.first.high) +
                     " leave TMEM, which has 128");
  }
  if (extent.second.low < 0 || extent.second.high >= per_lane) {
    refuse(name, "elements " + std::to_string(extent.second.low) + " to " +
                     std::to_string(extent.second.high) + " of a lane leave the allocation of " +
                     std::to_string(place.size) + " columns");
  }
}

Axis read_axis(const char* name, Reader& reader) {
  Axis axis;
  axis.size = reader.next("an axis' size", 0, kMaxCoordinate);
  axis.digits = reader.digits("an axis' digits");
  __int128 held = 1;
  for (const Digit& digit : axis.digits) held = std::min<__int128>(held * digit.extent, kMaxCoordinate);
  if (held < axis.size)
    refuse(name, "an axis' digits hold fewer than its " + std::to_string(axis.size) + " entries");
  return axis;
}

// Item width, element width and packing must belong together; the padded containers are byte wide.
void check_widths(const char* name, const Placement& place) {
  const bool whole = place.item_bytes * 8 == place.bits;
  const bool nibbles = place.packing == Packing::plain && place.item_bytes == 1 && place.bits == 4;
  const bool padded_ok = place.packing == Packing::plain || place.bits == 8;
  if ((place.item_bytes == 1 || place.item_bytes == 2 || place.item_bytes == 4) && (whole || nibbles) &&
      padded_ok) {
    return;
  }
  refuse(name, std::to_string(place.item_bytes) + "-byte items as elements of " + std::to_string(place.bits) +
                   " bits with packing " + std::to_string(static_cast<int64_t>(place.packing)) +
                   " do not exist");
}

Placement read_placement(const char* name, Int64s list, int64_t shared_bytes, int64_t tmem_columns) {
  Reader reader(name, list);
  Placement place;
  place.storage = static_cast<Storage>(reader.next("storage", 0, 1));
  place.packing = static_cast<Packing>(reader.next("packing", 0, 2));
  place.item_bytes = reader.next("item_bytes", 1, 4);
  place.bits = reader.next("bits", 4, 32);
  const bool shared = place.storage == Storage::shared;
  const int64_t room = shared ? shared_bytes : tmem_columns;
  place.base = reader.next("base", 0, room);
  place.size = reader.next("size", 0, room - place.base);
  place.origin_first = reader.next("origin_first", 0, kMaxCoordinate);
  place.origin_second = reader.next("origin_second", 0, kMaxCoordinate);
  place.swizzle_mask = reader.next("swizzle_mask", 0, 1 << 20);
  place.swizzle_shift = reader.next("swizzle_shift", -20, 20);
  place.axes.resize(static_cast<size_t>(reader.next("axes", 0, kMaxDigits)));
  __int128 elements = 1;
  // The room bounds the loops below whatever the strides are.
  const int64_t capacity = shared ? 2 * place.size : place.size * 8 * kTmemLanes;
  for (Axis& axis : place.axes) {
    axis = read_axis(name, reader);
    elements *= axis.size;
    if (axis.size > capacity || elements > capacity) {
      refuse(name, "more elements than the allocation of " + std::to_string(place.size) + " holds");
    }
  }
  place.replicas = reader.digits("replicas");
  reader.end();
  int64_t copies = 1;
  for (const Digit& digit : place.replicas) {
    copies = std::min(copies * digit.extent, kMaxCoordinate);
    if (copies > kTmemLanes) refuse(name, "more than 128 replicas");
  }
  if (shared && !place.replicas.empty()) refuse(name, "replicas exist in TMEM only");
  if (!shared && place.swizzle_mask != 0) refuse(name, "a swizzle exists in shared memory only");
  check_widths(name, place);
  if (shared) check_shared(name, place);
  if (!shared) check_tmem(name, place);
  return place;
}

void require_storage(const char* name, const Placement& place, Storage storage) {
  if (place.storage != storage) {
    refuse(name, storage == Storage::tmem ? "must be in TMEM" : "must be in shared memory");
  }
}

void check_apart(const std::vector<std::pair<const char*, const Placement*>>& placements) {
  for (size_t i = 0; i < placements.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const Placement &x = *placements[i].second, &y = *placements[j].second;
      if (x.storage == y.storage && x.base < y.base + y.size && y.base < x.base + x.size) {
        refuse(placements[i].first, std::string("its allocation overlaps the one of ") + placements[j].first);
      }
    }
  }
}

template <typename T>
std::vector<T> read_starts(const char* name, Int64s list, __int128 count, bool narrow) {
  if (static_cast<__int128>(list.size) != count) {
    refuse(name, "has " + std::to_string(list.size) + " entries, expected one per tile");
  }
  std::vector<T> starts(list.size);
  for (size_t i = 0; i < list.size; ++i) {
    if (narrow && (list.data[i] < 0 || list.data[i] > int64_t{UINT32_MAX})) {
      refuse(name, "entry " + std::to_string(list.data[i]) + " is no 32-bit TMEM address");
    }
    starts[i] = static_cast<T>(list.data[i]);
  }
  return starts;
}

int64_t scalar(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high) {
    refuse(name, std::to_string(value) + ", allowed: " + std::to_string(low) + " to " + std::to_string(high));
  }
  return value;
}

void read_repeats(Int64s repeats, Plan& plan) {
  if (repeats.size != 3)
    refuse("repeats", "has " + std::to_string(repeats.size) + " entries, expected 3: M, N, K");
  plan.m_repeat = scalar("repeats", repeats.data[0], 1, kMaxCoordinate);
  plan.n_repeat = scalar("repeats", repeats.data[1], 1, kMaxCoordinate);
  plan.k_repeat = scalar("repeats", repeats.data[2], 1, kMaxCoordinate);
}

}  // namespace

int64_t Placement::elements() const {
  int64_t count = 1;
  for (const Axis& axis : axes) count *= axis.size;
  return count;
}

Plan decode_plan(const PlanAttributes& attributes) {
  Plan plan;
  plan.opcode_text = std::string(attributes.opcode);
  plan.opcode = parse_opcode(attributes.opcode);
  plan.idesc = static_cast<uint32_t>(scalar("idesc", attributes.idesc, 0, UINT32_MAX));
  plan.shared_bytes = scalar("shared_bytes", attributes.shared_bytes, 0, kSharedBudget);
  plan.tmem_columns = scalar("tmem_columns", attributes.tmem_columns, 0, kTmemColumns);
  read_repeats(attributes.repeats, plan);
  const auto place = [&](const char* name, Int64s list) {
    return read_placement(name, list, plan.shared_bytes, plan.tmem_columns);
  };
  plan.d = place("d_place", attributes.d_place);
  plan.a = place("a_place", attributes.a_place);
  plan.b = place("b_place", attributes.b_place);
  require_storage("d_place", plan.d, Storage::tmem);
  require_storage("b_place", plan.b, Storage::shared);
  if (plan.d.packing != Packing::plain || plan.d.item_bytes < 2) {
    refuse("d_place", "D has plain items of 2 or 4 bytes");
  }
  if (!plan.d.replicas.empty()) refuse("d_place", "D has no replicas");
  plan.a_in_tmem = plan.a.storage == Storage::tmem;
  std::vector<std::pair<const char*, const Placement*>> placements = {
      {"d_place", &plan.d}, {"a_place", &plan.a}, {"b_place", &plan.b}};
  const __int128 m = plan.m_repeat, n = plan.n_repeat, k = plan.k_repeat;
  const bool scaled = plan.opcode.block_scaled();
  if (scaled) {
    plan.sfa = place("sfa_place", attributes.sfa_place);
    plan.sfb = place("sfb_place", attributes.sfb_place);
    require_storage("sfa_place", plan.sfa, Storage::tmem);
    require_storage("sfb_place", plan.sfb, Storage::tmem);
    placements.push_back({"sfa_place", &plan.sfa});
    placements.push_back({"sfb_place", &plan.sfb});
    for (const auto& [name, scale] : {std::pair{"sfa_place", &plan.sfa}, std::pair{"sfb_place", &plan.sfb}}) {
      if (scale->packing != Packing::plain || scale->bits != 8) refuse(name, "scales are plain bytes");
    }
  } else if (attributes.sfa_place.size != 0 || attributes.sfb_place.size != 0) {
    refuse("sfa_place", "scales given, but the opcode is not block scaled");
  }
  check_apart(placements);
  plan.d_start = read_starts<uint32_t>("d_starts", attributes.d_starts, m * n, true);
  plan.a_start = read_starts<uint64_t>("a_starts", attributes.a_starts, m * k, plan.a_in_tmem);
  plan.b_start = read_starts<uint64_t>("b_starts", attributes.b_starts, n * k, false);
  plan.sfa_start = read_starts<uint32_t>("sfa_starts", attributes.sfa_starts, scaled ? m * k : 0, true);
  plan.sfb_start = read_starts<uint32_t>("sfb_starts", attributes.sfb_starts, scaled ? n * k : 0, true);
  return plan;
}

}  // namespace tcgen05

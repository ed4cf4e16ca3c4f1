#include "model/staging.h"

#include <cstring>

#include "model/instruction.h"

namespace tcgen05::model {
namespace {

struct Offset {
  int64_t first = 0, second = 0;
};

std::vector<Offset> offsets_of(const std::vector<Digit>& digits, int64_t size) {
  std::vector<Offset> offsets(static_cast<size_t>(size));
  for (int64_t index = 0; index < size; ++index) {
    int64_t rest = index;
    for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit) {
      offsets[static_cast<size_t>(index)].first += rest % digit->extent * digit->first;
      offsets[static_cast<size_t>(index)].second += rest % digit->extent * digit->second;
      rest /= digit->extent;
    }
  }
  return offsets;
}

// The bit where the element at linear offset (first, second) lies.
struct Locate {
  const Placement& place;
  uint32_t operator()(int64_t first, int64_t second) const {
    int64_t x = first;
    if (place.storage == Storage::tmem) {
      // FP4 sits in bits 2-5 of its byte, FP6 in bits 0-5 (ptx_contract 6).
      const int64_t inside = place.packing == Packing::fp4 ? 2 : 0;
      return static_cast<uint32_t>(x * kColumns * 32 + 32 * place.base + second * place.bits + inside);
    }
    x ^= place.swizzle_shift >= 0 ? (x >> place.swizzle_shift) & place.swizzle_mask
                                  : (x & place.swizzle_mask) << -place.swizzle_shift;
    if (place.packing == Packing::plain) return static_cast<uint32_t>(8 * place.base + x * place.bits);
    const int64_t width = place.packing == Packing::fp6 ? 6 : 4;
    return static_cast<uint32_t>(8 * (place.base + x / 16 * 16) + x % 16 * width);
  }
};

// Entries of the innermost axis that stay together wherever the axis begins.
struct Segment {
  uint32_t entry, count;
  Offset start;
};

// The elements that a swizzle and a padded container leave together: neighbours up to a multiple of this
// power of two.
int64_t granule(const Placement& place) {
  if (place.storage == Storage::tmem) return int64_t{1} << 40;
  int64_t bits = place.swizzle_mask;
  if (place.swizzle_shift < 0) bits |= bits << -place.swizzle_shift;
  if (place.packing != Packing::plain) bits |= 16;
  return bits == 0 ? int64_t{1} << 40 : bits & -bits;
}

// Splits the axis into segments whose elements lie `step` apart (in `first` of shared memory, `second` of
// TMEM) and within one granule.
std::vector<Segment> segments_of(const std::vector<Offset>& axis, bool tmem, int64_t step, int64_t granule) {
  std::vector<Segment> segments;
  for (uint32_t entry = 0; entry < axis.size(); ++entry) {
    const Offset& at = axis[entry];
    if (!segments.empty()) {
      Segment& last = segments.back();
      const int64_t moved = int64_t{last.count} * step;
      const int64_t first = last.start.first + (tmem ? 0 : moved),
                    second = last.start.second + (tmem ? moved : 0);
      const bool together = tmem || ((first ^ last.start.first) & -granule) == 0;
      if (at.first == first && at.second == second && together) {
        ++last.count;
        continue;
      }
    }
    segments.push_back({entry, 1, at});
  }
  return segments;
}

void insert(uint8_t* memory, uint32_t bit, uint32_t width, uint32_t code) {
  uint8_t* at = memory + bit / 8;
  const uint32_t shift = bit % 8, mask = ((1u << width) - 1) << shift;
  const uint32_t value = (code << shift) & mask;
  at[0] = static_cast<uint8_t>((at[0] & ~mask) | value);
  if (mask >> 8 != 0) at[1] = static_cast<uint8_t>((at[1] & ~(mask >> 8)) | value >> 8);
}

}  // namespace

StagingTable::StagingTable(const Placement& place) : item_bytes_(static_cast<uint32_t>(place.item_bytes)) {
  const bool tmem = place.storage == Storage::tmem;
  width_ = place.packing == Packing::fp6   ? 6
           : place.packing == Packing::fp4 ? 4
                                           : static_cast<uint32_t>(place.bits);
  step_ = place.packing == Packing::plain || tmem ? static_cast<uint32_t>(place.bits) : width_;
  std::vector<std::vector<Offset>> tables;
  for (const Axis& axis : place.axes) tables.push_back(offsets_of(axis.digits, axis.size));
  if (tables.empty()) tables.push_back({Offset{}});
  const std::vector<Offset> inner = tables.back();
  tables.pop_back();
  int64_t copies = 1, outer = 1, step = 1;
  for (const Digit& digit : place.replicas) copies *= digit.extent;
  for (const auto& table : tables) outer *= static_cast<int64_t>(table.size());
  if (tmem && inner.size() > 1 && inner[1].second > 0) {
    step = inner[1].second;
    step_ = static_cast<uint32_t>(step * place.bits);
  }
  const int64_t unit = granule(place);
  const std::vector<Segment> segments = segments_of(inner, tmem, step, unit);
  const std::vector<Segment> singles = segments_of(inner, tmem, step, 1);
  const Locate locate{place};
  for (const Offset& copy : offsets_of(place.replicas, copies)) {
    for (int64_t coordinate = 0; coordinate < outer; ++coordinate) {
      int64_t first = place.origin_first + copy.first, second = place.origin_second + copy.second;
      int64_t rest = coordinate;
      for (auto table = tables.rbegin(); table != tables.rend(); ++table) {
        const int64_t size = static_cast<int64_t>(table->size());
        first += (*table)[static_cast<size_t>(rest % size)].first;
        second += (*table)[static_cast<size_t>(rest % size)].second;
        rest /= size;
      }
      const uint32_t entry = static_cast<uint32_t>(coordinate) * static_cast<uint32_t>(inner.size());
      for (const Segment& own : (first & (unit - 1)) == 0 ? segments : singles) {
        append(entry + own.entry, own.count, locate(first + own.start.first, second + own.start.second));
      }
    }
  }
}

void StagingTable::append(uint32_t entry, uint32_t count, uint32_t bit) {
  if (!runs_.empty()) {
    Run& last = runs_.back();
    if (last.entry + last.count == entry && last.bit + last.count * step_ == bit) {
      last.count += count;
      return;
    }
  }
  runs_.push_back({entry, count, bit});
}

namespace {

// Whole items, `step` bytes apart in memory.
template <typename Item>
void scatter(const uint8_t* source, uint8_t* target, uint32_t count, size_t step) {
  for (uint32_t t = 0; t < count; ++t)
    std::memcpy(target + t * step, source + t * sizeof(Item), sizeof(Item));
}
template <typename Item>
void collect(const uint8_t* source, uint8_t* target, uint32_t count, size_t step) {
  for (uint32_t t = 0; t < count; ++t)
    std::memcpy(target + t * sizeof(Item), source + t * step, sizeof(Item));
}

}  // namespace

void StagingTable::store(const uint8_t* array, uint8_t* memory) const {
  const size_t step = step_ / 8;
  for (const Run& run : runs_) {
    const uint8_t* source = array + size_t{run.entry} * item_bytes_;
    uint8_t* target = memory + run.bit / 8;
    if (width_ == 8 * item_bytes_) {
      if (step_ == width_) {
        std::memcpy(target, source, size_t{run.count} * item_bytes_);
      } else if (item_bytes_ == 1) {
        scatter<uint8_t>(source, target, run.count, step);
      } else if (item_bytes_ == 2) {
        scatter<uint16_t>(source, target, run.count, step);
      } else {
        scatter<uint32_t>(source, target, run.count, step);
      }
    } else if (width_ == 4 && step_ == 4 && run.bit % 8 == 0 && run.count % 2 == 0) {
      for (uint32_t t = 0; t < run.count; t += 2) {
        target[t / 2] = static_cast<uint8_t>((source[t] & 15) | source[t + 1] << 4);
      }
    } else {
      for (uint32_t t = 0; t < run.count; ++t) insert(memory, run.bit + t * step_, width_, source[t]);
    }
  }
}

void StagingTable::load(const uint8_t* memory, uint8_t* array) const {
  const size_t step = step_ / 8;
  for (const Run& run : runs_) {
    const uint8_t* source = memory + run.bit / 8;
    uint8_t* target = array + size_t{run.entry} * item_bytes_;
    if (step == item_bytes_) {
      std::memcpy(target, source, size_t{run.count} * item_bytes_);
    } else if (item_bytes_ == 2) {
      collect<uint16_t>(source, target, run.count, step);
    } else {
      collect<uint32_t>(source, target, run.count, step);
    }
  }
}

}  // namespace tcgen05::model

#include "launch/pack.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <vector>

#include "launch/copy.h"

namespace tcgen05::launch {
namespace {

constexpr int64_t kThreadsPerMultiprocessor = 2048;
constexpr int64_t kReservedShared = 2048;  // of each resident CTA: the system's 1 KiB, barriers and alignment
constexpr int64_t kImageTarget = 66 * 1024;  // bytes of image that cost no occupancy worth having
constexpr int64_t kMaxBatch = std::numeric_limits<int32_t>::max();

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

int64_t pitch_of(int64_t columns) { return columns * 4 + kImagePadding; }

int64_t staged_columns(const Plan& plan) { return round_up(plan.tmem_columns, kColumnStep); }

// Columns of the image: all that are staged, or as many as fit.
int64_t window_columns(const Plan& plan) {
  const int64_t room = std::max(plan.shared_bytes, kImageTarget);
  const int64_t fit = (room / kLanes - kImagePadding) / 4 / kColumnStep * kColumnStep;
  return std::min(staged_columns(plan), fit);
}

// Batch axes innermost first, neighbours merged wherever every array steps through them evenly.
class Batch {
 public:
  Batch(const Arrays& arrays, std::vector<const Array*> given) : given_(std::move(given)) {
    for (size_t i = arrays.batch.size(); i-- > 0;)
      if (arrays.batch[i] != 1) add(i, arrays.batch[i]);
    if (axes_.size() > kMaxBatchAxes)
      throw std::invalid_argument(
          "the batch has " + std::to_string(axes_.size()) +
          " axes that cannot be merged, because operands broadcast over some of them; "
          "device kernels take " +
          std::to_string(kMaxBatchAxes));
  }

  void write(Params& params) const {
    params.batch_axes = static_cast<uint32_t>(axes_.size());
    for (size_t i = 0; i < axes_.size(); ++i) params.batch_size[i] = static_cast<uint32_t>(axes_[i].size);
  }

  Strided strided(const Array& array) const {
    Strided out{reinterpret_cast<uint8_t*>(array.data), array.group_stride, {}};
    if (array.data == nullptr) return out;
    for (size_t i = 0; i < axes_.size(); ++i) out.batch_stride[i] = array.batch_strides[axes_[i].axis];
    return out;
  }

 private:
  struct Axis {
    size_t axis;  // the innermost of the merged axes: its strides are theirs
    int64_t size;
  };

  void add(size_t axis, int64_t size) {
    const auto runs_on = [&](const Array* array) {
      return array->batch_strides[axis] == array->batch_strides[axes_.back().axis] * axes_.back().size;
    };
    if (!axes_.empty() && std::all_of(given_.begin(), given_.end(), runs_on)) {
      axes_.back().size *= size;
    } else {
      axes_.push_back({axis, size});
    }
  }

  std::vector<const Array*> given_;
  std::vector<Axis> axes_;
};

// Every share of the array starts on a multiple of 16 bytes.
bool aligned(const Array& array) {
  const auto even = [](int64_t value) { return value % 16 == 0; };
  return even(static_cast<int64_t>(reinterpret_cast<uintptr_t>(array.data))) && even(array.group_stride) &&
         std::all_of(array.batch_strides.begin(), array.batch_strides.end(), even);
}

class Table {
 public:
  explicit Table(Params& params) : params_(params) {}

  template <typename T>
  void write(Operand operand, const std::vector<T>& starts) {
    params_.start[operand] = static_cast<uint32_t>(used_);
    for (T start : starts) {
      word(static_cast<uint32_t>(start));
      if constexpr (sizeof(T) == 8) word(static_cast<uint32_t>(start >> 32));
    }
  }

 private:
  void word(uint32_t value) {
    if (used_ == kTableWords)
      throw std::invalid_argument("the repeats need more than " + std::to_string(kTableWords) +
                                  " words of start addresses, which is all that a device kernel holds");
    params_.table[used_++] = value;
  }

  Params& params_;
  size_t used_ = 0;
};

uint32_t collector_code(const Opcode& opcode) {
  // Unset means discard (PTX ISA 9.7.16.10).
  const int use = opcode.collector == Collector::unset ? 3 : static_cast<int>(opcode.collector) - 1;
  return static_cast<uint32_t>(use + (opcode.ws ? 4 * opcode.collector_buffer : 0));
}

}  // namespace

uint32_t allocated_columns(const Plan& plan) {
  uint32_t columns = kColumnStep;
  while (columns < plan.tmem_columns) columns *= 2;
  return columns;
}

uint32_t shared_bytes(const Plan& plan) {
  const int64_t image = pitch_of(window_columns(plan)) * kLanes;
  return static_cast<uint32_t>(std::max(round_up(plan.shared_bytes, 16), image));
}

Params pack(const Plan& plan, const Arrays& arrays) {
  if (arrays.batch_size > kMaxBatch)
    throw std::invalid_argument("the batch has " + std::to_string(arrays.batch_size) +
                                " elements; a launch takes up to " + std::to_string(kMaxBatch));
  const bool scaled = plan.opcode.block_scaled();
  std::vector<const Array*> given = {&arrays.d_in, &arrays.d_out, &arrays.a,
                                     &arrays.b,    &arrays.accum, &arrays.pred};
  if (scaled) given.insert(given.end(), {&arrays.sfa, &arrays.sfb});
  if (arrays.masked) given.push_back(&arrays.mask);
  const Batch batch(arrays, given);

  Params params{};
  params.batch = static_cast<uint32_t>(arrays.batch_size);
  batch.write(params);
  params.idesc = plan.idesc;
  params.collector = collector_code(plan.opcode);
  params.m_repeat = static_cast<uint32_t>(plan.m_repeat);
  params.n_repeat = static_cast<uint32_t>(plan.n_repeat);
  params.k_repeat = static_cast<uint32_t>(plan.k_repeat);

  params.shared_bytes = static_cast<uint32_t>(round_up(plan.shared_bytes, 16));
  params.tmem_columns = allocated_columns(plan);
  params.staged_columns = static_cast<uint32_t>(staged_columns(plan));
  params.d_first = static_cast<uint32_t>(plan.d.base / kColumnStep * kColumnStep);
  params.d_last = static_cast<uint32_t>(round_up(plan.d.base + plan.d.size, kColumnStep));
  params.window_columns = static_cast<uint32_t>(window_columns(plan));
  params.pitch = static_cast<uint32_t>(pitch_of(params.window_columns));

  const auto operand = [&](Operand index, const Array& array, const Placement& placement, bool is_aligned) {
    params.operand[index] = batch.strided(array);
    params.copy[index] = make_copy(placement, is_aligned);
    params.in_tmem[index] = placement.storage == Storage::tmem;
  };
  operand(kD, arrays.d_in, plan.d, aligned(arrays.d_in) && aligned(arrays.d_out));
  operand(kA, arrays.a, plan.a, aligned(arrays.a));
  operand(kB, arrays.b, plan.b, aligned(arrays.b));
  params.in_tmem[kSfa] = params.in_tmem[kSfb] = 1;
  if (scaled) {
    operand(kSfa, arrays.sfa, plan.sfa, aligned(arrays.sfa));
    operand(kSfb, arrays.sfb, plan.sfb, aligned(arrays.sfb));
  }
  params.result = batch.strided(arrays.d_out);
  params.accum = batch.strided(arrays.accum);
  params.pred = batch.strided(arrays.pred);
  if (arrays.masked) params.mask = batch.strided(arrays.mask);

  Table table(params);
  table.write(kA, plan.a_start);
  table.write(kB, plan.b_start);
  table.write(kD, plan.d_start);
  table.write(kSfa, plan.sfa_start);
  table.write(kSfb, plan.sfb_start);
  return params;
}

Grid grid_for(const Plan& plan, int64_t batch_size, const Device& device) {
  const int64_t group = plan.opcode.cta_group;
  Grid grid;
  grid.cluster = static_cast<uint32_t>(group);
  grid.threads = kThreads;
  grid.shared_bytes = shared_bytes(plan);
  const int64_t resident = std::min({kTmemColumns / allocated_columns(plan),
                                     device.shared_per_multiprocessor / (grid.shared_bytes + kReservedShared),
                                     kThreadsPerMultiprocessor / int64_t{kThreads}});
  const int64_t groups =
      std::max<int64_t>(1, std::max<int64_t>(1, resident) * device.multiprocessors / group);
  grid.ctas = static_cast<uint32_t>(std::min(batch_size, groups) * group);
  return grid;
}

}  // namespace tcgen05::launch

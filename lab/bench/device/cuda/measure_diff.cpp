#include <fmt/format.h>

#include "kernels/cuda/diff.h"
#include "lab/bench/device/cuda/kernels.h"
#include "lab/bench/device/cuda/measures.h"

namespace deltawire::cli {

using cuda::Buffer;
using cuda::Place;

namespace {

struct NewWeights {
  cuda::NewKind kind;
  const void* data;
  unsigned width;
};

// Into lists with room for 4 % in one go: the kernel alone.
Result<double> time_diff(DeviceModel* model, const NewWeights& now, bool with_sums) {
  std::vector<cuda::PairArray> arrays;
  for (size_t i = 0; i < model->sizes.size(); ++i) {
    arrays.push_back({model->old_tensor(i),
                      static_cast<const uint8_t*>(now.data) + model->begins[i] * now.width,
                      model->sizes[i], 0});
  }
  DW_ASSIGN_OR_RETURN(const cuda::PairBatch batch,
                      cuda::PairBatch::make(std::move(arrays), 2, nullptr));
  const uint64_t capacity = model->num_elements / 25;
  DW_ASSIGN_OR_RETURN(
      const Buffer tiles,
      Buffer::allocate(Place::kDevice, batch.num_tiles() * sizeof(cuda::TileChanges)));
  DW_ASSIGN_OR_RETURN(const Buffer positions, Buffer::allocate(Place::kDevice, capacity * 2));
  DW_ASSIGN_OR_RETURN(const Buffer values, Buffer::allocate(Place::kDevice, capacity * 2));
  DW_ASSIGN_OR_RETURN(const Buffer total, Buffer::allocate(Place::kDevice, 8));
  const uint64_t sum_bytes = model->sizes.size() * 16;
  DW_ASSIGN_OR_RETURN(const Buffer sums, Buffer::allocate(Place::kDevice, sum_bytes));
  const cuda::DiffOutput out{tiles.data<cuda::TileChanges>(),
                             positions.data<uint16_t>(),
                             values.data(),
                             capacity,
                             total.data<uint64_t>(),
                             with_sums ? sums.data<uint64_t>() : nullptr};
  DW_ASSIGN_OR_RETURN(const double time, model->best([&]() -> Status {
    DW_RETURN_IF_ERROR(cuda::fill_zero(total.data(), 8, nullptr));
    DW_RETURN_IF_ERROR(cuda::fill_zero(sums.data(), sum_bytes, nullptr));
    return cuda::diff(batch, now.kind, 0, batch.num_tiles(), out, nullptr);
  }));
  DW_RETURN_IF_ERROR(cuda::copy(&model->num_changed, total.data(), 8, nullptr));
  DW_RETURN_IF_ERROR(cuda::wait(nullptr));
  return time;
}

Status measure_cast(DeviceModel* model) {
  const uint64_t span = model->span;
  const Result<Buffer> wide = Buffer::allocate(Place::kDevice, span * 4);
  if (!wide.ok()) return {};  // too large a model for this card
  DW_RETURN_IF_ERROR(
      cuda::widen(model->new_weights.data<uint16_t>(), wide->data<float>(), span, nullptr));
  DW_ASSIGN_OR_RETURN(const Buffer sink, Buffer::allocate(Place::kDevice, 16));
  DW_ASSIGN_OR_RETURN(const double bound, model->best([&] {
    return cuda::read_both(model->old_weights.data(), wide->data(), span * 2, span * 4,
                           sink.data<uint32_t>(), nullptr);
  }));
  const NewWeights now{cuda::NewKind::kF32AsBf16, wide->data(), 4};
  DW_ASSIGN_OR_RETURN(const double time, time_diff(model, now, false));
  model->rows.push_back({"cast from f32 + diff + compaction", time, bound, ""});
  DW_ASSIGN_OR_RETURN(const double with_digests, time_diff(model, now, true));
  model->rows.push_back({"the same with sum128 of the new weights", with_digests, bound,
                         fmt::format("{:.3f} x the time without", with_digests / time)});
  return {};
}

}  // namespace

Status measure_diff(DeviceModel* model) {
  const NewWeights now{cuda::NewKind::kSame, model->new_weights.data(), 2};
  DW_ASSIGN_OR_RETURN(model->diff, time_diff(model, now, false));
  model->rows.push_back({"diff + compaction", model->diff, model->read_both, ""});
  DW_ASSIGN_OR_RETURN(const double with_digests, time_diff(model, now, true));
  model->rows.push_back({"diff + compaction + sum128 of the new weights", with_digests,
                         model->read_both,
                         fmt::format("{:.3f} x the time without", with_digests / model->diff)});
  return measure_cast(model);
}

}  // namespace deltawire::cli

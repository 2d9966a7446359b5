// Bounds, the diff, digests, a snapshot in pinned host memory, and what others would do.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/cuda/diff.h"
#include "lab/bench/cuda/device_model.h"
#include "lab/bench/cuda/kernels.h"

namespace deltawire::cli {

using cuda::Buffer;
using cuda::DeviceSnapshot;
using cuda::Place;

Status measure_bounds(DeviceModel* model) {
  const uint64_t bytes = model->span * 2;
  const uint8_t *const old_bytes = model->old_weights.data(), *const new_bytes =
                                                                  model->new_weights.data();
  DW_ASSIGN_OR_RETURN(const Buffer to, Buffer::allocate(Place::kDevice, bytes));
  DW_ASSIGN_OR_RETURN(const double copying, model->best([&] {
    return cuda::copy_kernel(old_bytes, to.data(), bytes, nullptr);
  }));
  model->rows.push_back(
      {"copy", copying, 0,
       fmt::format("{:.2f} TB/s read and written", 2e-9 * double(bytes) / copying)});
  DW_ASSIGN_OR_RETURN(const Buffer sink, Buffer::allocate(Place::kDevice, 16));
  DW_ASSIGN_OR_RETURN(model->read_both, model->best([&] {
    return cuda::read_both(old_bytes, new_bytes, bytes, bytes, sink.data<uint32_t>(), nullptr);
  }));
  model->rows.push_back({"read both", model->read_both, 0,
                         fmt::format("{:.2f} TB/s", 2e-9 * double(bytes) / model->read_both)});
  return {};
}

// ---- the diff

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

namespace {

Result<cuda::Context> make_context() {
  cuda::ContextOptions options;
  options.scratch_bytes = DeviceModel::kScratchBytes;
  return cuda::Context::create(options);
}

}  // namespace

Status measure_digests(DeviceModel* model) {
  DW_ASSIGN_OR_RETURN(cuda::Context context, make_context());
  std::vector<cuda::Contents> arrays;
  for (size_t i = 0; i < model->sizes.size(); ++i) {
    arrays.push_back({{DType::kBF16, model->new_tensor(i)}, DType::kBF16, model->sizes[i] * 2});
  }
  DW_ASSIGN_OR_RETURN(const double time,
                      model->best([&] { return context.digests(arrays, nullptr).status(); }));
  model->rows.push_back({"digests", time, model->read_both / 2, ""});
  return {};
}

// ---- a snapshot in pinned host memory, which crosses the bus as it is compared

namespace {

constexpr uint64_t kMostBytes = uint64_t{4} << 30;  // to pin memory takes seconds

std::string bus_note(uint64_t num_bytes, double time, double bound) {
  return fmt::format("{:.1f} GB/s of {:.1f} that the bus copies, {:.0f} %",
                     1e-6 * double(num_bytes) / time, 1e-6 * double(num_bytes) / bound,
                     100 * bound / time);
}

// Of the device's memory.
Result<double> free_gigabytes() {
  DW_ASSIGN_OR_RETURN(const cuda::DeviceInfo info, cuda::device_info());
  return 1e-9 * double(info.free_bytes);
}

// The kernel alone, which reads host memory itself; and what the bus copies.
Status measure_diff_alone(DeviceModel* model) {
  const uint64_t n = std::min<uint64_t>(model->span, uint64_t{1} << 30), bytes = n * 2;
  DW_ASSIGN_OR_RETURN(const Buffer host, Buffer::allocate(Place::kPinned, bytes));
  DW_ASSIGN_OR_RETURN(const Buffer to, Buffer::allocate(Place::kDevice, bytes));
  DW_RETURN_IF_ERROR(cuda::copy(host.data(), model->old_weights.data(), bytes, nullptr));
  DW_ASSIGN_OR_RETURN(const double bound, model->best([&] {
    return cuda::copy(to.data(), host.data(), bytes, nullptr);
  }));
  model->bus_gigabytes = 1e-6 * double(bytes) / bound;
  DW_ASSIGN_OR_RETURN(
      const cuda::PairBatch batch,
      cuda::PairBatch::make({{host.data(), model->new_weights.data(), n, 0}}, 2, nullptr));
  const uint64_t capacity = n / 25;
  DW_ASSIGN_OR_RETURN(
      const Buffer tiles,
      Buffer::allocate(Place::kDevice, batch.num_tiles() * sizeof(cuda::TileChanges)));
  DW_ASSIGN_OR_RETURN(const Buffer lists, Buffer::allocate(Place::kDevice, capacity * 4));
  DW_ASSIGN_OR_RETURN(const Buffer total, Buffer::allocate(Place::kDevice, 8));
  const cuda::DiffOutput out{tiles.data<cuda::TileChanges>(), lists.data<uint16_t>(),
                             lists.data<uint16_t>() + capacity, capacity, total.data<uint64_t>()};
  DW_ASSIGN_OR_RETURN(const double time, model->best([&]() -> Status {
    DW_RETURN_IF_ERROR(cuda::fill_zero(total.data(), 8, nullptr));
    return cuda::diff(batch, cuda::NewKind::kSame, 0, batch.num_tiles(), out, nullptr);
  }));
  model->rows.push_back(
      {"diff, snapshot in pinned host memory", time, bound, bus_note(bytes, time, bound)});
  return {};
}

}  // namespace

Status measure_pinned(DeviceModel* model) {
  DW_RETURN_IF_ERROR(measure_diff_alone(model));
  DW_ASSIGN_OR_RETURN(cuda::Context context, make_context());
  DeviceSnapshot snapshot(&context, DeviceSnapshot::Placement::kPinned);
  std::vector<DeviceSnapshot::Change> changes;
  uint64_t bytes = 0;
  for (size_t i = 0; i < model->sizes.size(); ++i) {
    const uint64_t own = model->sizes[i] * 2;
    if (bytes + own > kMostBytes) continue;
    const cuda::Contents contents{{DType::kBF16, model->old_tensor(i)}, DType::kBF16, own};
    DW_ASSIGN_OR_RETURN(const DeviceSnapshot::Slot slot, snapshot.add(contents, nullptr));
    changes.push_back({slot, {DType::kBF16, model->new_tensor(i)}});
    bytes += own;
  }
  const double bound = 1e-6 * double(bytes) / model->bus_gigabytes;
  for (const char* codec : {"gaps", "tight"}) {
    DW_ASSIGN_OR_RETURN(const double free_before, free_gigabytes());
    DW_ASSIGN_OR_RETURN(const double time, model->best([&] {
      return snapshot.encode(codec, changes, nullptr).status();
    }));
    DW_ASSIGN_OR_RETURN(const double free_after, free_gigabytes());
    model->rows.push_back(
        {fmt::format("{} encode, snapshot in pinned host memory", codec), time, bound,
         fmt::format("{}; {:.0f} MB more of the device taken", bus_note(bytes, time, bound),
                     1e3 * (free_before - free_after))});
  }
  return {};
}

// ---- tensor by tensor, as a framework would

Status measure_baselines(DeviceModel* model) {
  const std::vector<uint64_t>& sizes = model->sizes;
  const uint64_t largest = *std::max_element(sizes.begin(), sizes.end());
  const uint64_t room = model->num_elements / 8;
  DW_ASSIGN_OR_RETURN(const Buffer scratch,
                      Buffer::allocate(Place::kDevice, cuda::select_scratch(largest)));
  DW_ASSIGN_OR_RETURN(const Buffer positions, Buffer::allocate(Place::kDevice, room * 4));
  DW_ASSIGN_OR_RETURN(const Buffer values, Buffer::allocate(Place::kDevice, room * 2));
  DW_ASSIGN_OR_RETURN(const Buffer counts, Buffer::allocate(Place::kDevice, sizes.size() * 4));
  std::vector<uint64_t> places;
  uint64_t at = 0;
  for (const uint64_t size : sizes) {
    places.push_back(at);
    at += size / 8;
  }
  DW_ASSIGN_OR_RETURN(const double select, model->best([&]() -> Status {
    for (size_t i = 0; i < sizes.size(); ++i) {
      DW_RETURN_IF_ERROR(cuda::select_changes(model->old_tensor(i), model->new_tensor(i), sizes[i],
                                              scratch.data(), positions.data<int32_t>() + places[i],
                                              values.data<uint16_t>() + places[i],
                                              counts.data<int32_t>() + i, nullptr));
    }
    return {};
  }));
  model->rows.push_back(
      {"baseline: cub select + gather, by tensor", select, model->read_both,
       fmt::format("{:.2f} x the time of diff + compaction", select / model->diff)});
  std::vector<int32_t> found(sizes.size());
  DW_RETURN_IF_ERROR(cuda::copy(found.data(), counts.data(), found.size() * 4, nullptr));
  DW_RETURN_IF_ERROR(cuda::wait(nullptr));
  DW_ASSIGN_OR_RETURN(const double put, model->best([&]() -> Status {
    for (size_t i = 0; i < sizes.size(); ++i) {
      DW_RETURN_IF_ERROR(
          cuda::put_values(model->old_tensor(i), positions.data<int32_t>() + places[i],
                           values.data<uint16_t>() + places[i], uint64_t(found[i]), nullptr));
    }
    return {};
  }));
  model->rows.push_back({"baseline: plain scatter, by tensor", put, 0, ""});
  return {};
}

}  // namespace deltawire::cli

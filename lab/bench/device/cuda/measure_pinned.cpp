// A snapshot in pinned host memory, which crosses the bus as it is compared.
#include <fmt/format.h>

#include "kernels/cuda/diff.h"
#include "lab/bench/device/cuda/measures.h"
#include "lab/bench/device/cuda/public_arrays.h"

namespace deltawire::cli {

using cuda::Buffer;
using cuda::DeviceSnapshot;
using cuda::Place;

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
  DW_ASSIGN_OR_RETURN(cuda::Context context, make_context(*model));
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

}  // namespace deltawire::cli

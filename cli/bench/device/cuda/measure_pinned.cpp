// A snapshot in pinned host memory, which crosses the bus as it is compared.
#include <fmt/format.h>

#include "cli/bench/device/cuda/measures.h"
#include "cli/bench/device/cuda/public_arrays.h"
#include "sync/cuda/context.h"

namespace deltawire::cli {

using cuda::Buffer;
using cuda::DeviceSnapshot;
using cuda::Place;

namespace {

constexpr uint64_t kMostBytes = uint64_t{4} << 30;  // to pin memory takes seconds

// What the bus copies, in milliseconds for so many bytes.
Result<double> time_bus(const DeviceModel& model, uint64_t num_bytes) {
  const uint64_t piece = std::min<uint64_t>(num_bytes, uint64_t{1} << 30);
  DW_ASSIGN_OR_RETURN(const Buffer host, Buffer::allocate(Place::kPinned, piece));
  DW_ASSIGN_OR_RETURN(const Buffer to, Buffer::allocate(Place::kDevice, piece));
  DW_ASSIGN_OR_RETURN(const double time, model.best([&] {
    return cuda::copy(to.data(), host.data(), piece, nullptr);
  }));
  return time * double(num_bytes) / double(piece);
}

}  // namespace

Status measure_pinned(DeviceModel* model) {
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
  DW_ASSIGN_OR_RETURN(const double bound, time_bus(*model, bytes));
  const auto measure = [&](const char* codec, bool staged) -> Status {
    context.impl().stages = staged;
    DW_ASSIGN_OR_RETURN(const double time, model->best([&] {
      return snapshot.encode(codec, changes, nullptr).status();
    }));
    model->rows.push_back(
        {fmt::format("{} encode, snapshot in pinned memory{}", codec, staged ? ", staged" : ""),
         time, bound,
         fmt::format("{:.1f} GB/s of {:.1f} that the bus copies", 1e-6 * double(bytes) / time,
                     1e-6 * double(bytes) / bound)});
    return {};
  };
  for (const bool staged : {false, true}) {
    for (const char* codec : {"gaps", "tight"}) DW_RETURN_IF_ERROR(measure(codec, staged));
  }
  return {};
}

}  // namespace deltawire::cli

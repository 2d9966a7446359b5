#include "lab/bench/device/cuda/measures.h"
#include "lab/bench/device/cuda/public_arrays.h"

namespace deltawire::cli {

using cuda::Buffer;
using cuda::Place;

namespace {

constexpr uint64_t kColumns = 128;  // of every tensor here; all have a multiple of them

// The tensor in two boxes, its left and its right columns, each where it is: every position is
// taken apart and looked for as in a sharded engine, and the outcome can be compared.
cuda::MappedTensor two_halves(const DeviceModel& model, size_t i) {
  const uint64_t rows = model.sizes[i] / kColumns, half = kColumns / 2;
  const std::vector<int64_t> strides = {int64_t(kColumns), 1};
  uint16_t* const data = model.old_tensor(i);
  return {
      DType::kBF16,
      {rows, kColumns},
      {{{{0, 0}, {rows, half}}, data, strides}, {{{0, half}, {rows, half}}, data + half, strides}}};
}

}  // namespace

Status measure_mapped(DeviceModel* model) {
  DW_ASSIGN_OR_RETURN(cuda::Context context, make_context(*model));
  std::vector<cuda::Pair> pairs;
  std::vector<cuda::MappedTensor> tensors;
  for (size_t i = 0; i < model->sizes.size(); ++i) {
    pairs.push_back(public_pair(*model, i));
    tensors.push_back(two_halves(*model, i));
  }
  DW_ASSIGN_OR_RETURN(const std::vector<cuda::Coded> coded, context.encode("gaps", pairs, nullptr));
  uint64_t bytes = 0;
  for (const cuda::Coded& one : coded) bytes += one.payload.size();
  DW_ASSIGN_OR_RETURN(const Buffer pinned, Buffer::allocate(Place::kPinned, bytes + 1));
  std::vector<cuda::MappedPatch> patches;
  uint64_t at = 0;
  for (size_t i = 0; i < coded.size(); ++i) {
    const std::vector<uint8_t>& payload = coded[i].payload;
    std::copy(payload.begin(), payload.end(), pinned.data() + at);
    patches.push_back({&tensors[i], "gaps", {pinned.data() + at, payload.size()}});
    at += payload.size();
  }
  const uint64_t span_bytes = model->span * 2;
  DW_ASSIGN_OR_RETURN(const Buffer keep, Buffer::allocate(Place::kDevice, span_bytes));
  DW_RETURN_IF_ERROR(cuda::copy(keep.data(), model->old_weights.data(), span_bytes, nullptr));
  const auto restore = [&]() -> Status {
    DW_RETURN_IF_ERROR(cuda::copy(model->old_weights.data(), keep.data(), span_bytes, nullptr));
    return cuda::wait(nullptr);
  };
  DW_ASSIGN_OR_RETURN(const double time,
                      model->best([&] { return context.apply_mapped(patches, nullptr); }, restore));
  DW_RETURN_IF_ERROR(model->check_equal("gaps through a map"));
  model->rows.push_back(
      {"gaps apply through a map", time, 0,
       "all of the call; where payloads do not fit, positions cross the bus twice"});
  return restore();
}

}  // namespace deltawire::cli

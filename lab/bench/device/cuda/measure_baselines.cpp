// Tensor by tensor, as a framework would.
#include <fmt/format.h>

#include <algorithm>

#include "lab/bench/device/cuda/kernels.h"
#include "lab/bench/device/cuda/measures.h"

namespace deltawire::cli {

using cuda::Buffer;
using cuda::Place;

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

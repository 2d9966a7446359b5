#include "cli/bench/device/cuda/device_model.h"

#include <fmt/format.h>

#include "cli/bench/device/model.h"
#include "kernels/cuda/bench.h"

namespace deltawire::cli {

using cuda::Buffer;
using cuda::Place;

namespace {

constexpr uint64_t kAlign = 128;  // elements: tensors begin at 256 bytes

}  // namespace

Status DeviceModel::make_weights() {
  DW_ASSIGN_OR_RETURN(info, cuda::device_info());
  sizes = tensors_of_model(options.model);
  if (sizes.empty()) {
    return invalid_argument(fmt::format("--model: expected one of {}, got {}",
                                        fmt::join(device_models(), ", "), options.model));
  }
  for (const uint64_t size : sizes) {
    begins.push_back(span);
    num_elements += size;
    span += (size + kAlign - 1) / kAlign * kAlign;
  }
  DW_ASSIGN_OR_RETURN(old_weights, Buffer::allocate(Place::kDevice, span * 2));
  DW_ASSIGN_OR_RETURN(new_weights, Buffer::allocate(Place::kDevice, span * 2));
  DW_RETURN_IF_ERROR(cuda::simulate_step(old_weights.data<uint16_t>(), new_weights.data<uint16_t>(),
                                         span, 1, float(options.density / 0.012 * 4.38e-5),
                                         nullptr));
  for (size_t i = 0; i < sizes.size(); ++i) {
    pairs.push_back({{2, 7, 0xff}, old_tensor(i), new_tensor(i), sizes[i], cuda::NewKind::kSame});
  }
  return cuda::wait(nullptr);
}

Result<double> DeviceModel::best(const std::function<Status()>& body,
                                 const std::function<Status()>& prepare) const {
  DW_ASSIGN_OR_RETURN(cuda::Stopwatch watch, cuda::Stopwatch::create());
  double least = 1e300;
  for (unsigned i = 0; i < options.repeat + 1; ++i) {  // the first warms up
    if (prepare) DW_RETURN_IF_ERROR(prepare());
    DW_RETURN_IF_ERROR(watch.start(nullptr));
    DW_RETURN_IF_ERROR(body());
    DW_ASSIGN_OR_RETURN(const double time, watch.stop(nullptr));
    if (i > 0) least = std::min(least, time);
  }
  return least;
}

// Gaps between tensors are not patched: they are compared tensor by tensor.
Status DeviceModel::check_equal(const std::string& what) const {
  DW_ASSIGN_OR_RETURN(const Buffer count, Buffer::allocate(Place::kDevice, 8));
  DW_RETURN_IF_ERROR(cuda::fill_zero(count.data(), 8, nullptr));
  for (size_t i = 0; i < sizes.size(); ++i) {
    DW_RETURN_IF_ERROR(cuda::count_different(old_tensor(i), new_tensor(i), sizes[i] * 2,
                                             count.data<unsigned long long>(), nullptr));
  }
  uint64_t different = 0;
  DW_RETURN_IF_ERROR(cuda::copy(&different, count.data(), 8, nullptr));
  DW_RETURN_IF_ERROR(cuda::wait(nullptr));
  if (different == 0) return {};
  return internal_error(fmt::format("{}: {} bytes differ after the patch", what, different));
}

}  // namespace deltawire::cli

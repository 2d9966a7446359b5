#include "lab/bench/device/cuda/device_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "lab/bench/data.h"
#include "lab/bench/device/cuda/kernels.h"
#include "lab/bench/models.h"

namespace deltawire::cli {

using cuda::Buffer;
using cuda::Place;

namespace {

constexpr uint64_t kAlign = 128;  // elements: tensors begin at 256 bytes
// Copies of a tensor are joined to tensors of up to so many elements, as large ones of models are.
constexpr uint64_t kJoinedElements = uint64_t{1} << 26;

// Copies [1, count) of the elements before them.
Status repeat(uint16_t* begin, uint64_t size, uint64_t count) {
  for (uint64_t have = 1; have < count;) {
    const uint64_t more = std::min(have, count - have);
    DW_RETURN_IF_ERROR(cuda::copy(begin + have * size, begin, more * size * 2, nullptr));
    have += more;
  }
  return {};
}

}  // namespace

Status DeviceModel::make_weights() {
  DW_ASSIGN_OR_RETURN(info, cuda::device_info());
  DW_RETURN_IF_ERROR(is_recorded() ? load() : simulate());
  for (size_t i = 0; i < sizes.size(); ++i) {
    pairs.push_back({{2, 7, 0xff}, old_tensor(i), new_tensor(i), sizes[i], cuda::NewKind::kSame});
  }
  return cuda::wait(nullptr);
}

Status DeviceModel::lay_out() {
  for (const uint64_t size : sizes) {
    begins.push_back(span);
    num_elements += size;
    span += (size + kAlign - 1) / kAlign * kAlign;
  }
  DW_ASSIGN_OR_RETURN(old_weights, Buffer::allocate(Place::kDevice, span * 2));
  DW_ASSIGN_OR_RETURN(new_weights, Buffer::allocate(Place::kDevice, span * 2));
  return {};
}

Status DeviceModel::simulate() {
  source = options.model;
  sizes = tensors_of_model(options.model);
  if (sizes.empty()) {
    return invalid_argument(fmt::format("--model: expected one of {}, got {}",
                                        fmt::join(device_models(), ", "), options.model));
  }
  DW_RETURN_IF_ERROR(lay_out());
  return cuda::simulate_step(old_weights.data<uint16_t>(), new_weights.data<uint16_t>(), span, 1,
                             float(options.density / 0.012 * 4.38e-5), nullptr);
}

Status DeviceModel::load() {
  DW_ASSIGN_OR_RETURN(const BenchData data, load_bench_data(options.old_path, options.new_path,
                                                            &pool, [](auto...) { return true; }));
  source = fmt::format("{}, {} copies", data.source, options.copies);
  std::vector<const BenchTensor*> of;  // which each of `sizes` is copies of
  for (const BenchTensor& tensor : data.tensors) {
    const uint64_t size = tensor.before.size() / 2;
    if (tensor.dtype != DType::kBF16 || size == 0) continue;
    const uint64_t joined = std::max<uint64_t>(1, kJoinedElements / size);
    for (uint64_t left = options.copies; left > 0; left -= std::min(left, joined)) {
      of.push_back(&tensor);
      sizes.push_back(std::min(left, joined) * size);
    }
  }
  if (sizes.empty()) {
    return invalid_argument(options.new_path + ": has no BF16 tensor in common with " +
                            options.old_path);
  }
  DW_RETURN_IF_ERROR(lay_out());
  for (size_t i = 0; i < sizes.size(); ++i) {
    const uint64_t bytes = of[i]->before.size();
    DW_RETURN_IF_ERROR(cuda::copy(old_tensor(i), of[i]->before.data(), bytes, nullptr));
    DW_RETURN_IF_ERROR(cuda::copy(new_tensor(i), of[i]->after.data(), bytes, nullptr));
    DW_RETURN_IF_ERROR(repeat(old_tensor(i), bytes / 2, sizes[i] * 2 / bytes));
    DW_RETURN_IF_ERROR(repeat(new_tensor(i), bytes / 2, sizes[i] * 2 / bytes));
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

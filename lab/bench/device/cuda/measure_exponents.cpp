#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "cli/units.h"
#include "codec/cuda/exponents_encode.h"
#include "lab/bench/device/cuda/kernels.h"
#include "lab/bench/device/cuda/measures.h"

namespace deltawire::cli {
namespace {

using cuda::Buffer;
using cuda::DeviceTimes;

constexpr uint64_t kMostMeasured = uint64_t{4} << 30;  // of weights: payloads are held

double wall_ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Whole tensors, one after the other, as a version that is stored whole is put.
class WholeMeasure {
 public:
  explicit WholeMeasure(DeviceModel* model) : model_(*model), payloads_(model->sizes.size()) {
    options_.scratch_bytes = model->options.scratch_mib << 20;
    options_.pool = &model->pool;
    options_.workspace = &model->workspace;
    while (count_ < model->sizes.size() && bytes_ < kMostMeasured) {
      bytes_ += model->sizes[count_++] * 2;
    }
  }

  Status encode() {
    DeviceTimes least{1e300, 1e300};
    double wall = 1e300;
    for (unsigned k = 0; k < model_.options.repeat; ++k) {
      DeviceTimes times;
      const double begin = wall_ms();
      for (size_t i = 0; i < count_; ++i) {
        const cuda::DeviceWhole whole{layout_, model_.new_tensor(i), model_.sizes[i]};
        DW_ASSIGN_OR_RETURN(payloads_[i], cuda::encode_whole(whole, options_, nullptr, &times));
      }
      wall = std::min(wall, wall_ms() - begin);
      least.statistics = std::min(least.statistics, times.statistics);
      least.coding = std::min(least.coding, times.coding);
    }
    uint64_t coded = 0;
    for (const std::vector<uint8_t>& payload : payloads_) coded += payload.size();
    add("encode: plan", least.statistics, "");
    add("encode: code", least.coding,
        fmt::format("; {:.3f} x smaller; payloads on the host after {:.1f} ms, {:.1f} GB/s",
                    double(bytes_) / double(coded), wall, rate(wall)));
    return {};
  }

  Status decode() {
    const uint64_t largest =
        *std::max_element(model_.sizes.begin(), model_.sizes.begin() + ptrdiff_t(count_)) * 2;
    DW_ASSIGN_OR_RETURN(const Buffer to, Buffer::allocate(cuda::Place::kDevice, largest));
    DW_ASSIGN_OR_RETURN(const Buffer different, Buffer::allocate(cuda::Place::kDevice, 8));
    DW_RETURN_IF_ERROR(cuda::fill_zero(different.data(), 8, nullptr));
    double device = 1e300, wall = 1e300;
    for (unsigned k = 0; k < model_.options.repeat; ++k) {
      DeviceTimes times;
      double sum = 0;
      for (size_t i = 0; i < count_; ++i) {
        const cuda::DevicePatch patch{layout_, to.data(), model_.sizes[i], CodecId::kExponents,
                                      payloads_[i]};
        cuda::DeviceOptions options = options_;
        options.all_or_nothing = false;
        const double begin = wall_ms();
        DW_RETURN_IF_ERROR(cuda::apply({&patch, 1}, options, nullptr, &times));
        sum += wall_ms() - begin;
        DW_RETURN_IF_ERROR(cuda::count_different(to.data(), model_.new_tensor(i),
                                                 model_.sizes[i] * 2,
                                                 different.data<unsigned long long>(), nullptr));
      }
      device = std::min(device, times.coding);
      wall = std::min(wall, sum);
    }
    uint64_t found = 0;
    DW_RETURN_IF_ERROR(cuda::copy(&found, different.data(), sizeof found, nullptr));
    DW_RETURN_IF_ERROR(cuda::wait(nullptr));
    if (found != 0) return internal_error(fmt::format("exponents: {} bytes differ", found));
    add("decode: check and write", device,
        fmt::format("; {:.1f} ms, {:.1f} GB/s from payloads on the host", wall, rate(wall)));
    return {};
  }

 private:
  double rate(double milliseconds) const { return 1e-6 * double(bytes_) / milliseconds; }
  void add(const char* what, double time, const std::string& more) {
    model_.rows.push_back({fmt::format("exponents {}", what), time, 0,
                           fmt::format("{:.0f} GB/s of {} of weights{}", rate(time),
                                       human_bytes(double(bytes_)), more)});
  }

  DeviceModel& model_;
  const Layout layout_{2, 7, 0xff};
  cuda::DeviceOptions options_;
  size_t count_ = 0;  // of tensors
  uint64_t bytes_ = 0;
  std::vector<std::vector<uint8_t>> payloads_;
};

}  // namespace

Status measure_exponents(DeviceModel* model) {
  WholeMeasure measure(model);
  DW_RETURN_IF_ERROR(measure.encode());
  return measure.decode();
}

}  // namespace deltawire::cli

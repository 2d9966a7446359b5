#include <fmt/format.h>

#include <chrono>

#include "cli/bench/device/cuda/measures.h"
#include "cli/units.h"

namespace deltawire::cli {

using cuda::Buffer;
using cuda::DeviceTimes;
using cuda::Place;

namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class CodecMeasure {
 public:
  CodecMeasure(DeviceModel* model, CodecId codec) : model_(*model), codec_(codec) {
    options_.scratch_bytes = model->options.scratch_mib << 20;
    options_.pool = &model->pool;
    options_.workspace = &model->workspace;
  }

  Status encode() {
    DeviceTimes least{1e300, 1e300};
    double wall = 1e300;
    for (unsigned i = 0; i < model_.options.repeat; ++i) {
      DeviceTimes times;
      encoded_.clear();  // to free what was encoded before is not measured
      const double begin = seconds_now();
      DW_ASSIGN_OR_RETURN(encoded_, cuda::encode(codec_, model_.pairs, options_, nullptr, &times));
      wall = std::min(wall, seconds_now() - begin);
      if (times.statistics + times.coding < least.statistics + least.coding) least = times;
    }
    for (const Encoded& one : encoded_) bytes_ += one.payload.size();
    add(is_tight() ? " encode: statistics and models" : " encode: diff", least.statistics, 0, "");
    add(is_tight() ? " encode: scan, code, fetch" : " encode: lists", least.coding,
        is_tight() ? model_.read_both : 0,
        fmt::format("{}, {:.3f} B a change; payloads on the host after {:.1f} ms",
                    human_bytes(double(bytes_)), double(bytes_) / double(model_.num_changed),
                    wall * 1e3));
    return {};
  }

  Status apply() {
    const uint64_t span_bytes = model_.span * 2;
    uint8_t* const weights = model_.old_weights.data();
    DW_ASSIGN_OR_RETURN(const Buffer keep, Buffer::allocate(Place::kDevice, span_bytes));
    DW_RETURN_IF_ERROR(cuda::copy(keep.data(), weights, span_bytes, nullptr));
    DW_RETURN_IF_ERROR(make_patches());
    for (const bool whole : {false, true}) {
      options_.all_or_nothing = whole;
      double device = 1e300, wall = 1e300;
      for (unsigned i = 0; i < model_.options.repeat; ++i) {
        DW_RETURN_IF_ERROR(cuda::copy(weights, keep.data(), span_bytes, nullptr));
        DW_RETURN_IF_ERROR(cuda::wait(nullptr));
        DeviceTimes times;
        const double begin = seconds_now();
        DW_RETURN_IF_ERROR(cuda::apply(patches_, options_, nullptr, &times));
        wall = std::min(wall, seconds_now() - begin);
        device = std::min(device, times.coding);
      }
      DW_RETURN_IF_ERROR(model_.check_equal(name()));
      add(whole ? " apply, all or nothing" : " apply", device,
          is_tight() ? model_.read_both / 2 : 0,
          fmt::format("{:.1f} ms with the host's part; {} of device memory beside the weights",
                      wall * 1e3, human_bytes(double(model_.workspace.device_bytes()))));
    }
    return cuda::copy(weights, keep.data(), span_bytes, nullptr);
  }

 private:
  bool is_tight() const { return codec_ == CodecId::kTight; }
  std::string name() const { return std::string(find_codec(codec_)->name()); }
  void add(const char* what, double time, double bound, std::string note) {
    model_.rows.push_back({name() + what, time, bound, std::move(note)});
  }

  Status make_patches() {
    DW_ASSIGN_OR_RETURN(pinned_, Buffer::allocate(Place::kPinned, bytes_ + 1));
    uint64_t at = 0;
    for (size_t i = 0; i < encoded_.size(); ++i) {
      const std::vector<uint8_t>& payload = encoded_[i].payload;
      std::copy(payload.begin(), payload.end(), pinned_.data() + at);
      patches_.push_back({model_.pairs[i].layout,
                          model_.old_tensor(i),
                          model_.sizes[i],
                          codec_,
                          {pinned_.data() + at, payload.size()}});
      at += payload.size();
    }
    return {};
  }

  DeviceModel& model_;
  const CodecId codec_;
  cuda::DeviceOptions options_;
  std::vector<Encoded> encoded_;
  uint64_t bytes_ = 0;
  Buffer pinned_;
  std::vector<cuda::DevicePatch> patches_;
};

Status measure(DeviceModel* model, CodecId codec) {
  CodecMeasure measure(model, codec);
  DW_RETURN_IF_ERROR(measure.encode());
  return measure.apply();
}

}  // namespace

Status measure_gaps(DeviceModel* model) { return measure(model, CodecId::kGaps); }
Status measure_tight(DeviceModel* model) { return measure(model, CodecId::kTight); }

}  // namespace deltawire::cli

#include <fmt/format.h>

#include <chrono>

#include "cli/units.h"
#include "lab/bench/device/cuda/kernels.h"
#include "lab/bench/device/cuda/measures.h"

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
  CodecMeasure(DeviceModel* model, CodecId codec, std::string what = {})
      : model_(*model), codec_(codec), what_(std::move(what)) {
    options_.scratch_bytes = model->options.scratch_mib << 20;
    options_.pool = &model->pool;
    options_.workspace = &model->workspace;
    options_.spare = &spare_;
  }

  // With sum128 of the new weights in passing; the time is noted beside that without.
  Status encode_with_digests() {
    options_.new_digests = true;
    double least = 1e300;
    for (unsigned i = 0; i < model_.options.repeat; ++i) {
      DeviceTimes times;
      DW_RETURN_IF_ERROR(cuda::encode(codec_, model_.pairs, options_, nullptr, &times).status());
      least = std::min(least, times.statistics + times.coding);
    }
    options_.new_digests = false;
    add(" encode with sum128 of the new weights", least, 0,
        fmt::format("{:.3f} x the time without", least / encode_time_));
    return {};
  }

  Status encode() {
    DeviceTimes least{1e300, 1e300};
    double wall = 1e300;
    for (unsigned i = 0; i < model_.options.repeat; ++i) {
      DeviceTimes times;
      recycle();
      const double begin = seconds_now();
      DW_ASSIGN_OR_RETURN(encoded_, cuda::encode(codec_, model_.pairs, options_, nullptr, &times));
      wall = std::min(wall, seconds_now() - begin);
      if (times.statistics + times.coding < least.statistics + least.coding) least = times;
    }
    for (const Encoded& one : encoded_) bytes_ += one.payload.size();
    encode_time_ = least.statistics + least.coding;
    add(is_tight() ? " encode: statistics and models" : " encode: diff", least.statistics, 0, "");
    add(is_tight() ? " encode: scan, code, fetch" : " encode: lists", least.coding,
        is_tight() ? model_.read_both : 0,
        fmt::format("{}, {:.3f} B a change; payloads on the host after {:.1f} ms",
                    human_bytes(double(bytes_)), double(bytes_) / double(model_.num_changed),
                    wall * 1e3));
    return {};
  }

  // Milliseconds decoded once, and all or nothing, go to `times`.
  Status apply(double (&all_times)[2]) {
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
      all_times[whole ? 1 : 0] = device;
      add(whole ? " apply, all or nothing" : " apply", device,
          is_tight() ? model_.read_both / 2 : 0,
          fmt::format("{:.1f} ms with the host's part; {} of device memory beside the weights",
                      wall * 1e3, human_bytes(double(model_.workspace.device_bytes()))));
    }
    if (is_tight()) {
      DW_RETURN_IF_ERROR(note_coded_blocks());
      DW_RETURN_IF_ERROR(apply_summed(keep, all_times[0]));
      options_.keep_bytes = std::nullopt;
      DW_RETURN_IF_ERROR(apply_kept(keep));
      DW_RETURN_IF_ERROR(apply_summed(keep, all_times[0]));
      options_.keep_bytes = 0;
    }
    return cuda::copy(weights, keep.data(), span_bytes, nullptr);
  }

 private:
  // As a publisher does with payloads that have been put.
  void recycle() {
    for (Encoded& one : encoded_) spare_.give_back(std::move(one.payload));
    encoded_.clear();
  }
  bool is_tight() const { return codec_ == CodecId::kTight; }
  std::string name() const { return std::string(find_codec(codec_)->name()) + what_; }
  void add(const char* what, double time, double bound, std::string note) {
    model_.rows.push_back({name() + what, time, bound, std::move(note)});
  }

  // All or nothing, with device memory for all that is decoded.
  Status apply_kept(const Buffer& keep) {
    options_.all_or_nothing = true;
    double device = 1e300, wall = 1e300;
    for (unsigned i = 0; i < model_.options.repeat; ++i) {
      DW_RETURN_IF_ERROR(
          cuda::copy(model_.old_weights.data(), keep.data(), model_.span * 2, nullptr));
      DW_RETURN_IF_ERROR(cuda::wait(nullptr));
      DeviceTimes times;
      const double begin = seconds_now();
      DW_RETURN_IF_ERROR(cuda::apply(patches_, options_, nullptr, &times));
      wall = std::min(wall, seconds_now() - begin);
      device = std::min(device, times.coding);
    }
    DW_RETURN_IF_ERROR(model_.check_equal(name()));
    add(" apply, all or nothing, what is decoded kept", device, model_.read_both / 2,
        fmt::format("{:.1f} ms with the host's part; {} of device memory kept, and {} of scratch",
                    wall * 1e3, human_bytes(double(model_.workspace.kept_bytes())),
                    human_bytes(double(model_.workspace.device_bytes()))));
    return {};
  }

  // As a replica does it in its pause: checked before, with sum128 of what is written.
  Status apply_summed(const Buffer& keep, double without) {
    options_.all_or_nothing = false;
    double device = 1e300, wall = 1e300;
    std::vector<std::optional<Digest>> digests(patches_.size());
    for (unsigned i = 0; i < model_.options.repeat; ++i) {
      DW_RETURN_IF_ERROR(
          cuda::copy(model_.old_weights.data(), keep.data(), model_.span * 2, nullptr));
      DW_RETURN_IF_ERROR(cuda::wait(nullptr));
      options_.apply_follows = true;
      DW_RETURN_IF_ERROR(cuda::check(patches_, options_, nullptr));
      options_.apply_follows = false;
      options_.as_checked = true;
      options_.patched_digests = &digests;
      DeviceTimes times;
      const double begin = seconds_now();
      Status applied = cuda::apply(patches_, options_, nullptr, &times);
      wall = std::min(wall, seconds_now() - begin);
      device = std::min(device, times.coding);
      options_.as_checked = false;
      options_.patched_digests = nullptr;
      DW_RETURN_IF_ERROR(std::move(applied));
    }
    DW_RETURN_IF_ERROR(model_.check_equal(name()));
    const auto known = std::count_if(digests.begin(), digests.end(),
                                     [](const auto& digest) { return digest.has_value(); });
    const bool kept = options_.keep_bytes != uint64_t{0};
    add(kept ? " apply of what was checked and kept, with sum128"
             : " apply of what was checked, with sum128",
        device, model_.read_both / 2,
        fmt::format("{:.1f} ms with the host's part; {:.3f} x decoded once; digests of {} of {} "
                    "tensors",
                    wall * 1e3, device / without, known, digests.size()));
    return {};
  }

  // Blocks with steps other than +1 and -1 take more kernels.
  Status note_coded_blocks() {
    uint64_t all = 0, coded = 0;
    for (const cuda::DevicePatch& patch : patches_) {
      if (patch.payload.empty()) continue;
      DW_ASSIGN_OR_RETURN(const cuda::BlockKinds kinds, cuda::count_block_kinds(patch));
      all += kinds.num_blocks;
      coded += kinds.num_coded;
    }
    model_.rows.back().note +=
        fmt::format("; {} of {} blocks have steps other than +1 and -1", coded, all);
    return {};
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
  const std::string what_;  // is measured, beside the codec
  cuda::DeviceOptions options_;
  SpareVectors spare_{uint64_t{512} << 20};
  std::vector<cuda::DeviceEncoded> encoded_;
  uint64_t bytes_ = 0;
  double encode_time_ = 0;
  Buffer pinned_;
  std::vector<cuda::DevicePatch> patches_;
};

}  // namespace

Status measure_gaps(DeviceModel* model) {
  CodecMeasure measure(model, CodecId::kGaps);
  DW_RETURN_IF_ERROR(measure.encode());
  DW_RETURN_IF_ERROR(measure.encode_with_digests());
  double times[2];
  return measure.apply(times);
}

Status measure_tight(DeviceModel* model) {
  CodecMeasure measure(model, CodecId::kTight);
  DW_RETURN_IF_ERROR(measure.encode());
  DW_RETURN_IF_ERROR(measure.encode_with_digests());
  return measure.apply(model->tight_apply);
}

// Changes the new weights: to be the last.
Status measure_units(DeviceModel* model) {
  DW_RETURN_IF_ERROR(cuda::make_unit_steps(model->old_weights.data<uint16_t>(),
                                           model->new_weights.data<uint16_t>(), model->span,
                                           nullptr));
  CodecMeasure measure(model, CodecId::kTight, ", steps of 1,");
  DW_RETURN_IF_ERROR(measure.encode());
  double times[2];
  DW_RETURN_IF_ERROR(measure.apply(times));
  model->rows.back().note += fmt::format(
      "; the steps as they are take {:.2f} x the time decoded once, {:.2f} x all or "
      "nothing",
      model->tight_apply[0] / times[0], model->tight_apply[1] / times[1]);
  return {};
}

}  // namespace deltawire::cli

#include <fmt/format.h>

#include <algorithm>

#include "cli/table.h"
#include "codec/cuda/exponents_encode.h"
#include "lab/bench/cuda/device_model.h"
#include "lab/bench/cuda/kernels.h"

namespace deltawire::cli {

using cuda::Buffer;
using cuda::DeviceTimes;
using cuda::Place;

namespace {

class CodecMeasure {
 public:
  CodecMeasure(DeviceModel* model, CodecId codec, std::string what = {})
      : model_(*model), codec_(codec), what_(std::move(what)) {
    options_.scratch_bytes = DeviceModel::kScratchBytes;
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
      const double begin = now_seconds();
      DW_ASSIGN_OR_RETURN(encoded_, cuda::encode(codec_, model_.pairs, options_, nullptr, &times));
      wall = std::min(wall, now_seconds() - begin);
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
  Status apply(double (&times)[2]) {
    const uint64_t span_bytes = model_.span * 2;
    DW_ASSIGN_OR_RETURN(keep_, Buffer::allocate(Place::kDevice, span_bytes));
    DW_RETURN_IF_ERROR(cuda::copy(keep_.data(), model_.old_weights.data(), span_bytes, nullptr));
    DW_RETURN_IF_ERROR(make_patches());
    for (const bool whole : {false, true}) {
      options_.all_or_nothing = whole;
      DW_ASSIGN_OR_RETURN(const Took took, time_apply());
      times[whole ? 1 : 0] = took.device;
      add(whole ? " apply, all or nothing" : " apply", took.device,
          is_tight() ? model_.read_both / 2 : 0,
          fmt::format("{:.1f} ms with the host's part; {} of device memory beside the weights",
                      took.wall, human_bytes(double(model_.workspace.device_bytes()))));
    }
    if (is_tight()) {
      DW_RETURN_IF_ERROR(note_coded_blocks());
      DW_RETURN_IF_ERROR(apply_summed(times[0]));
      options_.keep_bytes = std::nullopt;
      DW_RETURN_IF_ERROR(apply_kept());
      DW_RETURN_IF_ERROR(apply_summed(times[0]));
      options_.keep_bytes = 0;
    }
    return cuda::copy(model_.old_weights.data(), keep_.data(), span_bytes, nullptr);
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

  struct Took {
    double device = 1e300, wall = 1e300;  // milliseconds, the best
  };

  // Patches the old weights several times, and compares. `prepare` is not timed.
  Result<Took> time_apply(const std::function<Status()>& prepare = {}) {
    Took took;
    for (unsigned i = 0; i < model_.options.repeat; ++i) {
      DW_RETURN_IF_ERROR(
          cuda::copy(model_.old_weights.data(), keep_.data(), model_.span * 2, nullptr));
      DW_RETURN_IF_ERROR(cuda::wait(nullptr));
      if (prepare) DW_RETURN_IF_ERROR(prepare());
      DeviceTimes times;
      const double begin = now_seconds();
      DW_RETURN_IF_ERROR(cuda::apply(patches_, options_, nullptr, &times));
      took.wall = std::min(took.wall, 1e3 * (now_seconds() - begin));
      took.device = std::min(took.device, times.coding);
    }
    DW_RETURN_IF_ERROR(model_.check_equal(name()));
    return took;
  }

  // All or nothing, with device memory for all that is decoded.
  Status apply_kept() {
    options_.all_or_nothing = true;
    DW_ASSIGN_OR_RETURN(const Took took, time_apply());
    add(" apply, all or nothing, what is decoded kept", took.device, model_.read_both / 2,
        fmt::format("{:.1f} ms with the host's part; {} of device memory kept, and {} of scratch",
                    took.wall, human_bytes(double(model_.workspace.kept_bytes())),
                    human_bytes(double(model_.workspace.device_bytes()))));
    return {};
  }

  // As a replica does it in its pause: checked before, with sum128 of what is written.
  Status apply_summed(double without) {
    options_.all_or_nothing = false;
    std::vector<std::optional<Digest>> digests(patches_.size());
    const auto set_checked = [&](bool checked) {
      options_.as_checked = checked;
      options_.patched_digests = checked ? &digests : nullptr;
    };
    Result<Took> took = time_apply([&]() -> Status {
      set_checked(false);
      options_.apply_follows = true;
      DW_RETURN_IF_ERROR(cuda::check(patches_, options_, nullptr));
      options_.apply_follows = false;
      set_checked(true);
      return {};
    });
    set_checked(false);
    if (!took.ok()) return std::move(took).status();
    const auto known = std::count_if(digests.begin(), digests.end(),
                                     [](const auto& digest) { return digest.has_value(); });
    const bool kept = options_.keep_bytes != uint64_t{0};
    add(kept ? " apply of what was checked and kept, with sum128"
             : " apply of what was checked, with sum128",
        took->device, model_.read_both / 2,
        fmt::format("{:.1f} ms with the host's part; {:.3f} x decoded once; digests of {} of {} "
                    "tensors",
                    took->wall, took->device / without, known, digests.size()));
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
  Buffer keep_;  // the old weights
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

namespace {

constexpr uint64_t kMostMeasured = uint64_t{4} << 30;  // of weights: payloads are held

// Whole tensors, one after the other, as a version that is stored whole is put.
class WholeMeasure {
 public:
  explicit WholeMeasure(DeviceModel* model) : model_(*model), payloads_(model->sizes.size()) {
    options_.scratch_bytes = DeviceModel::kScratchBytes;
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
      const double begin = now_seconds();
      for (size_t i = 0; i < count_; ++i) {
        const cuda::DeviceWhole whole{layout_, model_.new_tensor(i), model_.sizes[i]};
        DW_ASSIGN_OR_RETURN(payloads_[i], cuda::encode_whole(whole, options_, nullptr, &times));
      }
      wall = std::min(wall, 1e3 * (now_seconds() - begin));
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
    DW_ASSIGN_OR_RETURN(const Buffer to, Buffer::allocate(Place::kDevice, largest));
    DW_ASSIGN_OR_RETURN(const Buffer different, Buffer::allocate(Place::kDevice, 8));
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
        const double begin = now_seconds();
        DW_RETURN_IF_ERROR(cuda::apply({&patch, 1}, options, nullptr, &times));
        sum += 1e3 * (now_seconds() - begin);
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

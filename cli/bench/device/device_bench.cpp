#include "cli/bench/device/device_bench.h"

#include <fmt/format.h>

#include "cli/bench/device/model.h"
#include "deltawire/status.h"

#ifdef DELTAWIRE_HAVE_CUDA
#include <chrono>
#include <functional>

#include "base/thread_pool.h"
#include "cli/units.h"
#include "codec/cuda/device_codec.h"
#include "codec/cuda/workspace.h"
#include "kernels/cuda/bench.h"
#include "kernels/cuda/lists.h"
#endif

namespace deltawire::cli {

#ifndef DELTAWIRE_HAVE_CUDA

int device_bench(const Context& context, const DeviceBenchOptions&) {
  return context.fail(unsupported("this deltawire was built without CUDA"));
}

#else

namespace {

using cuda::Buffer;
using cuda::DevicePair;
using cuda::DevicePatch;
using cuda::DeviceTimes;
using cuda::Place;
using cuda::Stream;

constexpr uint64_t kAlign = 128;  // elements: tensors begin at 256 bytes

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Row {
  std::string what;
  double milliseconds;
  double bound;  // milliseconds that the machine needs at least; 0: none
  std::string note;
};

class DeviceBench {
 public:
  DeviceBench(const Context& context, const DeviceBenchOptions& options)
      : context_(context), options_(options), pool_(context.threads) {}

  Status run() {
    DW_RETURN_IF_ERROR(make_weights());
    DW_RETURN_IF_ERROR(measure_bounds());
    DW_RETURN_IF_ERROR(measure_diff());
    DW_RETURN_IF_ERROR(measure_cast());
    DW_RETURN_IF_ERROR(measure_codec(CodecId::kGaps, "gaps"));
    DW_RETURN_IF_ERROR(measure_codec(CodecId::kTight, "tight"));
    DW_RETURN_IF_ERROR(measure_host_snapshot());
    return measure_baseline();
  }

  nlohmann::json report() const {
    nlohmann::json rows = nlohmann::json::array();
    for (const Row& row : rows_) {
      rows.push_back({{"what", row.what},
                      {"milliseconds", row.milliseconds},
                      {"bound_milliseconds", row.bound},
                      {"note", row.note}});
    }
    return {{"device", info_.name},     {"driver", info_.driver},
            {"runtime", info_.runtime}, {"model", options_.model},
            {"tensors", sizes_.size()}, {"elements", num_elements_},
            {"changed", num_changed_},  {"rows", rows}};
  }

  void say() const {
    context_.say(fmt::format(
        "{}, driver {}.{}: {} tensors, {:.3f} B elements of bf16, {:.2f} % changed", info_.name,
        info_.driver / 1000, info_.driver % 1000 / 10, sizes_.size(), double(num_elements_) * 1e-9,
        100 * double(num_changed_) / double(num_elements_)));
    for (const Row& row : rows_) {
      context_.say(fmt::format("  {:<44} {:>9.3f} ms {}  {}", row.what, row.milliseconds,
                               row.bound > 0
                                   ? fmt::format("{:>6.2f} x bound", row.milliseconds / row.bound)
                                   : std::string(14, ' '),
                               row.note));
    }
  }

 private:
  // The best of several.
  Result<double> best(const std::function<Status()>& body) {
    DW_ASSIGN_OR_RETURN(cuda::Stopwatch watch, cuda::Stopwatch::create());
    double least = 1e300;
    for (unsigned i = 0; i < options_.repeat + 1; ++i) {  // the first warms up
      DW_RETURN_IF_ERROR(watch.start(nullptr));
      DW_RETURN_IF_ERROR(body());
      DW_ASSIGN_OR_RETURN(const double time, watch.stop(nullptr));
      if (i > 0) least = std::min(least, time);
    }
    return least;
  }

  Status make_weights() {
    DW_ASSIGN_OR_RETURN(info_, cuda::device_info());
    sizes_ = tensors_of_model(options_.model);
    if (sizes_.empty()) {
      return invalid_argument(fmt::format("--model: expected one of {}, got {}",
                                          fmt::join(device_models(), ", "), options_.model));
    }
    for (const uint64_t size : sizes_) {
      begins_.push_back(span_);
      num_elements_ += size;
      span_ += (size + kAlign - 1) / kAlign * kAlign;
    }
    DW_ASSIGN_OR_RETURN(old_, Buffer::allocate(Place::kDevice, span_ * 2));
    DW_ASSIGN_OR_RETURN(new_, Buffer::allocate(Place::kDevice, span_ * 2));
    DW_RETURN_IF_ERROR(cuda::simulate_step(old_.data<uint16_t>(), new_.data<uint16_t>(), span_, 1,
                                           float(options_.density / 0.012 * 4.38e-5), nullptr));
    for (size_t i = 0; i < sizes_.size(); ++i) {
      pairs_.push_back({{2, 7, 0xff},
                        old_.data<uint16_t>() + begins_[i],
                        new_.data<uint16_t>() + begins_[i],
                        sizes_[i],
                        cuda::NewKind::kSame});
    }
    return cuda::wait(nullptr);
  }

  Status measure_bounds() {
    DW_ASSIGN_OR_RETURN(const Buffer to, Buffer::allocate(Place::kDevice, span_ * 2));
    DW_ASSIGN_OR_RETURN(const double copying, best([&] {
                          return cuda::copy_kernel(old_.data(), to.data(), span_ * 2, nullptr);
                        }));
    rows_.push_back({"copy", copying, 0,
                     fmt::format("{:.2f} TB/s read and written", 4e-9 * double(span_) / copying)});
    DW_ASSIGN_OR_RETURN(const Buffer sink, Buffer::allocate(Place::kDevice, 16));
    DW_ASSIGN_OR_RETURN(read_both_, best([&] {
                          return cuda::read_both(old_.data(), new_.data(), span_ * 2, span_ * 2,
                                                 sink.data<uint32_t>(), nullptr);
                        }));
    rows_.push_back({"read both", read_both_, 0,
                     fmt::format("{:.2f} TB/s", 4e-9 * double(span_) / read_both_)});
    return {};
  }

  // Diff into lists with room for 4 % in one go: the kernel alone.
  Result<double> time_diff(cuda::NewKind kind, const void* new_data, unsigned new_bytes) {
    std::vector<cuda::PairArray> arrays;
    for (size_t i = 0; i < sizes_.size(); ++i) {
      arrays.push_back({old_.data<uint16_t>() + begins_[i],
                        static_cast<const uint8_t*>(new_data) + begins_[i] * new_bytes, sizes_[i],
                        0});
    }
    DW_ASSIGN_OR_RETURN(const cuda::PairBatch batch,
                        cuda::PairBatch::make(std::move(arrays), 2, nullptr));
    const uint64_t capacity = num_elements_ / 25;
    DW_ASSIGN_OR_RETURN(
        const Buffer tiles,
        Buffer::allocate(Place::kDevice, batch.num_tiles() * sizeof(cuda::TileChanges)));
    DW_ASSIGN_OR_RETURN(const Buffer positions, Buffer::allocate(Place::kDevice, capacity * 2));
    DW_ASSIGN_OR_RETURN(const Buffer values, Buffer::allocate(Place::kDevice, capacity * 2));
    DW_ASSIGN_OR_RETURN(const Buffer total, Buffer::allocate(Place::kDevice, 8));
    const cuda::DiffOutput out{tiles.data<cuda::TileChanges>(), positions.data<uint16_t>(),
                               values.data(), capacity, total.data<uint64_t>()};
    DW_ASSIGN_OR_RETURN(const double time, best([&]() -> Status {
                          DW_RETURN_IF_ERROR(cuda::fill_zero(total.data(), 8, nullptr));
                          return cuda::diff(batch, kind, 0, batch.num_tiles(), out, nullptr);
                        }));
    DW_RETURN_IF_ERROR(cuda::copy(&num_changed_, total.data(), 8, nullptr));
    DW_RETURN_IF_ERROR(cuda::wait(nullptr));
    return time;
  }

  Status measure_diff() {
    DW_ASSIGN_OR_RETURN(diff_, time_diff(cuda::NewKind::kSame, new_.data(), 2));
    rows_.push_back({"diff + compaction", diff_, read_both_, ""});
    return {};
  }

  Status measure_cast() {
    const Result<Buffer> wide = Buffer::allocate(Place::kDevice, span_ * 4);
    if (!wide.ok()) return {};  // too large a model for this card
    DW_RETURN_IF_ERROR(cuda::widen(new_.data<uint16_t>(), wide->data<float>(), span_, nullptr));
    DW_ASSIGN_OR_RETURN(const Buffer sink, Buffer::allocate(Place::kDevice, 16));
    DW_ASSIGN_OR_RETURN(const double bound, best([&] {
                          return cuda::read_both(old_.data(), wide->data(), span_ * 2, span_ * 4,
                                                 sink.data<uint32_t>(), nullptr);
                        }));
    DW_ASSIGN_OR_RETURN(const double time, time_diff(cuda::NewKind::kF32AsBf16, wide->data(), 4));
    rows_.push_back({"cast from f32 + diff + compaction", time, bound, ""});
    return {};
  }

  Status check_equal(const std::string& what) {
    DW_ASSIGN_OR_RETURN(const Buffer count, Buffer::allocate(Place::kDevice, 8));
    DW_RETURN_IF_ERROR(cuda::fill_zero(count.data(), 8, nullptr));
    // Gaps between tensors are not patched: they are compared tensor by tensor.
    for (size_t i = 0; i < sizes_.size(); ++i) {
      DW_RETURN_IF_ERROR(cuda::count_different(old_.data<uint16_t>() + begins_[i],
                                               new_.data<uint16_t>() + begins_[i], sizes_[i] * 2,
                                               count.data<unsigned long long>(), nullptr));
    }
    uint64_t different = 0;
    DW_RETURN_IF_ERROR(cuda::copy(&different, count.data(), 8, nullptr));
    DW_RETURN_IF_ERROR(cuda::wait(nullptr));
    if (different == 0) return {};
    return Status(Code::kInternal,
                  fmt::format("{}: {} bytes differ after the patch", what, different));
  }

  Status measure_codec(CodecId codec, const std::string& name) {
    cuda::DeviceOptions options;
    options.scratch_bytes = options_.scratch_mib << 20;
    options.pool = &pool_;
    options.workspace = &workspace_;
    DeviceTimes least{1e300, 1e300};
    double wall = 1e300;
    std::vector<Encoded> encoded;
    for (unsigned i = 0; i < options_.repeat; ++i) {
      DeviceTimes times;
      const double begin = seconds_now();
      DW_ASSIGN_OR_RETURN(encoded, cuda::encode(codec, pairs_, options, nullptr, &times));
      wall = std::min(wall, seconds_now() - begin);
      if (times.statistics + times.coding < least.statistics + least.coding) least = times;
    }
    uint64_t bytes = 0;
    for (const Encoded& one : encoded) bytes += one.payload.size();
    const bool is_tight = codec == CodecId::kTight;
    rows_.push_back({name + (is_tight ? " encode: statistics and models" : " encode: diff"),
                     least.statistics, 0, ""});
    rows_.push_back({name + (is_tight ? " encode: scan, code, fetch" : " encode: lists"),
                     least.coding, is_tight ? read_both_ : 0,
                     fmt::format("{}, {:.3f} B a change; payloads on the host after {:.1f} ms",
                                 human_bytes(double(bytes)), double(bytes) / double(num_changed_),
                                 wall * 1e3)});

    DW_ASSIGN_OR_RETURN(const Buffer pinned, Buffer::allocate(Place::kPinned, bytes + 1));
    DW_ASSIGN_OR_RETURN(const Buffer keep, Buffer::allocate(Place::kDevice, span_ * 2));
    DW_RETURN_IF_ERROR(cuda::copy(keep.data(), old_.data(), span_ * 2, nullptr));
    std::vector<DevicePatch> patches;
    uint64_t at = 0;
    for (size_t i = 0; i < pairs_.size(); ++i) {
      const std::vector<uint8_t>& payload = encoded[i].payload;
      std::copy(payload.begin(), payload.end(), pinned.data() + at);
      patches.push_back({pairs_[i].layout,
                         const_cast<void*>(pairs_[i].old_data),
                         sizes_[i],
                         codec,
                         {pinned.data() + at, payload.size()}});
      at += payload.size();
    }
    for (const bool whole : {false, true}) {
      options.all_or_nothing = whole;
      double device = 1e300;
      wall = 1e300;
      for (unsigned i = 0; i < options_.repeat; ++i) {
        DW_RETURN_IF_ERROR(cuda::copy(old_.data(), keep.data(), span_ * 2, nullptr));
        DW_RETURN_IF_ERROR(cuda::wait(nullptr));
        DeviceTimes times;
        const double begin = seconds_now();
        DW_RETURN_IF_ERROR(cuda::apply(patches, options, nullptr, &times));
        wall = std::min(wall, seconds_now() - begin);
        device = std::min(device, times.coding);
      }
      DW_RETURN_IF_ERROR(check_equal(name));
      rows_.push_back({name + (whole ? " apply, all or nothing" : " apply"), device,
                       is_tight ? read_both_ / 2 : 0,
                       fmt::format("{:.1f} ms with the host's part", wall * 1e3)});
    }
    return cuda::copy(old_.data(), keep.data(), span_ * 2, nullptr);
  }

  // The old weights in host memory, read over the bus while they are compared.
  Status measure_host_snapshot() {
    const uint64_t n = std::min<uint64_t>(span_, uint64_t{1} << 30) / kAlign * kAlign;
    DW_ASSIGN_OR_RETURN(const Buffer host, Buffer::allocate(Place::kPinned, n * 2));
    DW_ASSIGN_OR_RETURN(const Buffer to, Buffer::allocate(Place::kDevice, n * 2));
    DW_RETURN_IF_ERROR(cuda::copy(host.data(), old_.data(), n * 2, nullptr));
    DW_ASSIGN_OR_RETURN(const double bound,
                        best([&] { return cuda::copy(to.data(), host.data(), n * 2, nullptr); }));
    DW_ASSIGN_OR_RETURN(const cuda::PairBatch batch,
                        cuda::PairBatch::make({{host.data(), new_.data(), n, 0}}, 2, nullptr));
    const uint64_t capacity = n / 25;
    DW_ASSIGN_OR_RETURN(
        const Buffer tiles,
        Buffer::allocate(Place::kDevice, batch.num_tiles() * sizeof(cuda::TileChanges)));
    DW_ASSIGN_OR_RETURN(const Buffer lists, Buffer::allocate(Place::kDevice, capacity * 4));
    DW_ASSIGN_OR_RETURN(const Buffer total, Buffer::allocate(Place::kDevice, 8));
    const cuda::DiffOutput out{tiles.data<cuda::TileChanges>(), lists.data<uint16_t>(),
                               lists.data<uint16_t>() + capacity, capacity, total.data<uint64_t>()};
    DW_ASSIGN_OR_RETURN(const double time, best([&]() -> Status {
                          DW_RETURN_IF_ERROR(cuda::fill_zero(total.data(), 8, nullptr));
                          return cuda::diff(batch, cuda::NewKind::kSame, 0, batch.num_tiles(), out,
                                            nullptr);
                        }));
    rows_.push_back({"diff, snapshot in pinned host memory", time, bound,
                     fmt::format("{:.1f} GB/s of {:.1f} that the bus copies",
                                 2e-6 * double(n) / time, 2e-6 * double(n) / bound)});
    return {};
  }

  // Tensor by tensor, as a framework would.
  Status measure_baseline() {
    uint64_t largest = 0;
    for (const uint64_t size : sizes_) largest = std::max(largest, size);
    DW_ASSIGN_OR_RETURN(const Buffer scratch,
                        Buffer::allocate(Place::kDevice, cuda::select_scratch(largest)));
    DW_ASSIGN_OR_RETURN(const Buffer positions,
                        Buffer::allocate(Place::kDevice, num_elements_ / 8 * 4));
    DW_ASSIGN_OR_RETURN(const Buffer values,
                        Buffer::allocate(Place::kDevice, num_elements_ / 8 * 2));
    DW_ASSIGN_OR_RETURN(const Buffer counts, Buffer::allocate(Place::kDevice, sizes_.size() * 4));
    std::vector<uint64_t> places;
    uint64_t at = 0;
    for (const uint64_t size : sizes_) {
      places.push_back(at);
      at += size / 8;
    }
    DW_ASSIGN_OR_RETURN(
        const double select, best([&]() -> Status {
          for (size_t i = 0; i < sizes_.size(); ++i) {
            DW_RETURN_IF_ERROR(cuda::select_changes(
                old_.data<uint16_t>() + begins_[i], new_.data<uint16_t>() + begins_[i], sizes_[i],
                scratch.data(), positions.data<int32_t>() + places[i],
                values.data<uint16_t>() + places[i], counts.data<int32_t>() + i, nullptr));
          }
          return {};
        }));
    rows_.push_back({"baseline: cub select + gather, by tensor", select, read_both_,
                     fmt::format("{:.2f} x the time of diff + compaction", select / diff_)});
    std::vector<int32_t> found(sizes_.size());
    DW_RETURN_IF_ERROR(cuda::copy(found.data(), counts.data(), found.size() * 4, nullptr));
    DW_RETURN_IF_ERROR(cuda::wait(nullptr));
    DW_ASSIGN_OR_RETURN(
        const double put, best([&]() -> Status {
          for (size_t i = 0; i < sizes_.size(); ++i) {
            DW_RETURN_IF_ERROR(cuda::put_values(
                old_.data<uint16_t>() + begins_[i], positions.data<int32_t>() + places[i],
                values.data<uint16_t>() + places[i], uint64_t(found[i]), nullptr));
          }
          return {};
        }));
    rows_.push_back({"baseline: plain scatter, by tensor", put, 0, ""});
    return {};
  }

  const Context& context_;
  const DeviceBenchOptions& options_;
  ThreadPool pool_;
  cuda::Workspace workspace_;
  cuda::DeviceInfo info_;
  std::vector<uint64_t> sizes_, begins_;
  uint64_t span_ = 0, num_elements_ = 0, num_changed_ = 0;
  Buffer old_, new_;
  std::vector<DevicePair> pairs_;
  double read_both_ = 0, diff_ = 0;
  std::vector<Row> rows_;
};

}  // namespace

int device_bench(const Context& context, const DeviceBenchOptions& options) {
  DeviceBench bench(context, options);
  const Status status = bench.run();
  bench.say();
  if (!status.ok()) return context.fail(status);
  if (context.json) context.emit(bench.report());
  return context.succeed();
}

#endif

}  // namespace deltawire::cli

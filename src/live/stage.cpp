// For each held tensor: copies the live values, applies the payloads to the copy, and compares the
// copy with the live values. This handles all codecs, several deltas and changes that cancel out.
// Slices are small enough for a core's cache.
#include "live/stage.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "base/guard.h"
#include "base/spare_vectors.h"
#include "base/waves.h"
#include "codec/changes.h"
#include "format/layout.h"
#include "live/slices.h"
#include "tensor/form.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

// Some rows, or part of one row, and the changes found there: a list of the exchange.
struct Stretch {
  std::span<uint8_t> live;  // may be in GPU memory
  const uint8_t* old;       // the same values in host memory
  uint8_t* patched;
  uint64_t rows, columns;
  uint64_t stride, old_stride, patched_stride;
  ChunkChanges changes = {};
};

// Rows in live memory, the same values in host memory, and their copy.
struct HostRows {
  LiveRows live;
  const uint8_t* old;
  uint64_t old_stride;
  uint8_t* patched;
};

// Small enough for 32-bit offsets and for many threads.
void append_stretches(const HostRows& from, unsigned width, std::vector<Stretch>* out) {
  const LiveRows& all = from.live;
  const uint64_t columns = std::min<uint64_t>(all.columns, kChunkElements);
  const uint64_t most_rows = columns < all.columns ? 1 : UINT32_MAX / all.stride,
                 rows = std::max<uint64_t>(std::min(kChunkElements / columns, most_rows), 1);
  for (uint64_t row = 0; row < all.rows; row += rows) {
    for (uint64_t column = 0; column < all.columns; column += columns) {
      const uint64_t own_rows = std::min(rows, all.rows - row),
                     own_columns = std::min(columns, all.columns - column);
      out->push_back({{all.data + (row * all.stride + column) * width,
                       size_t(((own_rows - 1) * all.stride + own_columns) * width)},
                      from.old + (row * from.old_stride + column) * width,
                      from.patched + (row * all.columns + column) * width,
                      own_rows,
                      own_columns,
                      all.stride,
                      from.old_stride,
                      all.columns});
    }
  }
}

void copy(unsigned width, const Stretch& stretch) {
  for (uint64_t row = 0; row < stretch.rows; ++row) {
    std::memcpy(stretch.patched + row * stretch.patched_stride * width,
                stretch.old + row * stretch.old_stride * width, stretch.columns * width);
  }
}

void compare(unsigned width, Stretch* stretch) {
  const size_t row_bytes = stretch->columns * width;
  const auto row_of = [&](uint64_t row, ChunkChanges* out) {
    collect_chunk(width, {stretch->old + row * stretch->old_stride * width, row_bytes},
                  {stretch->patched + row * stretch->patched_stride * width, row_bytes}, out);
  };
  ChunkChanges& all = stretch->changes;
  if (stretch->rows == 1) return row_of(0, &all);
  ChunkChanges own;
  for (uint64_t row = 0; row < stretch->rows; ++row) {
    row_of(row, &own);
    for (const uint32_t position : own.positions) {
      all.positions.push_back(uint32_t(row * stretch->stride) + position);
    }
    all.values.insert(all.values.end(), own.values.begin(), own.values.end());
  }
}

class HostStage {
 public:
  // `device` fetches slices from GPU memory.
  HostStage(std::span<const StageSlice> slices, uint64_t scratch_bytes, ThreadPool* pool,
            DeviceStage* device)
      : slices_(slices),
        pool_(pool),
        device_(device),
        scratch_bytes_(scratch_bytes),
        spare_(scratch_bytes),
        found_(slices.size()) {}

  Status run() {
    std::vector<uint64_t> sizes;
    for (const StageSlice& slice : slices_) sizes.push_back(slice.size_bytes);
    return Waves(std::move(sizes), Waves::Inside::kShared, pool_, {}, scratch_bytes_)
        .run([&](size_t i, ThreadPool* inner) { return stage(i, inner); });
  }

  const std::set<std::string>& undecoded() const { return undecoded_; }

  std::vector<OwnedList> take_lists() {
    std::vector<OwnedList> lists;
    for (size_t i = 0; i < slices_.size(); ++i) {
      const HeldBoxes& held = *slices_[i].held;
      if (undecoded_.count(held.name) != 0) continue;
      for (Stretch& stretch : found_[i]) {
        lists.push_back({stretch.live, layout_of(held.dtype).width, held.memory,
                         std::move(stretch.changes.positions), std::move(stretch.changes.values)});
      }
    }
    return lists;
  }

 private:
  Status stage(size_t i, ThreadPool* inner) {
    const StageSlice& slice = slices_[i];
    if (is_undecoded(slice.held->name)) return {};
    const bool fetched = slice.held->memory == Memory::kCuda;
    std::vector<uint8_t> scratch = spare_.take(slice.size_bytes * (fetched ? 2 : 1));
    const unsigned width = layout_of(slice.held->dtype).width;
    uint8_t* const old = scratch.data() + slice.size_bytes;  // only for slices of a GPU
    if (fetched) DW_RETURN_IF_ERROR(device_->fetch(copied_rows(slice, old)));
    std::vector<Stretch> stretches;
    uint64_t at = 0;
    for (const LiveRows& rows : slice.rows()) {
      append_stretches({rows, fetched ? old + at : rows.data, fetched ? rows.columns : rows.stride,
                        scratch.data() + at},
                       width, &stretches);
      at += rows.size() * width;
    }
    parallel_for(inner, stretches.size(), [&](size_t k, unsigned) { copy(width, stretches[k]); });
    const Status applied = apply(slice, scratch.data(), inner);
    if (applied.code() == Code::kUnsupported) {
      const std::lock_guard lock(mutex_);
      undecoded_.insert(slice.held->name);
      return {};
    }
    DW_RETURN_IF_ERROR(applied);
    DW_RETURN_IF_ERROR(
        parallel_try("comparing", inner, stretches.size(), [&](size_t k, unsigned) -> Status {
          compare(width, &stretches[k]);
          return {};
        }));
    std::erase_if(stretches, [](const Stretch& one) { return one.changes.positions.empty(); });
    found_[i] = std::move(stretches);
    spare_.give_back(std::move(scratch));
    return {};
  }

  Status apply(const StageSlice& slice, uint8_t* scratch, ThreadPool* inner) const {
    const std::vector<LocalBox> boxes = slice.packed(scratch);
    for (const StageStep& step : slice.steps) {
      const Delta::Entry& item = *step.item;
      DW_RETURN_IF_ERROR(apply_to_boxes(item.entry, item.payload, boxes, {}, inner).at(item.place));
    }
    return {};
  }

  bool is_undecoded(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return undecoded_.count(name) != 0;
  }

  const std::span<const StageSlice> slices_;
  ThreadPool* const pool_;
  DeviceStage* const device_;
  const uint64_t scratch_bytes_;
  SpareVectors spare_;
  std::vector<std::vector<Stretch>> found_;  // by slice
  std::mutex mutex_;
  std::set<std::string> undecoded_;
};

Status check_form(const HeldBoxes& held, const DeltaEntry& entry) {
  if (same_form(entry, held)) return {};
  return base_mismatch("held as " + form_of(held) + ", but the delta has " + form_of(entry));
}

// The entries of the deltas by tensor, and the removed tensors.
struct Steps {
  std::map<std::string, std::vector<StageStep>> of_tensors;
  std::set<std::string> removed;

  explicit Steps(std::span<const Delta> deltas) {
    for (size_t i = 0; i < deltas.size(); ++i) {
      for (const Delta::Entry& item : deltas[i].entries) {
        of_tensors[item.entry.tensor].push_back({i, &item});
      }
      removed.insert(deltas[i].info.removed.begin(), deltas[i].info.removed.end());
    }
  }

  // Null if the deltas do not change the tensor.
  Result<const std::vector<StageStep>*> find(const HeldBoxes& held) const {
    if (removed.count(held.name) != 0) {
      return base_mismatch("tensor " + quote(held.name) + ": held, but removed by a delta");
    }
    const auto found = of_tensors.find(held.name);
    if (found == of_tensors.end()) return nullptr;
    for (const StageStep& step : found->second) {
      DW_RETURN_IF_ERROR(check_form(held, step.item->entry).at(step.item->place));
    }
    return &found->second;
  }

  std::vector<std::string> names() const {
    std::set<std::string> all = removed;
    for (const auto& [name, own] : of_tensors) all.insert(name);
    return {all.begin(), all.end()};
  }
};

constexpr uint64_t kHostScratch = uint64_t{256} << 20, kMostScratch = uint64_t{2} << 30,
                   kScratchShare = 16;

}  // namespace

struct DeltaStager::Impl {
  std::optional<ThreadPool> pool;
  std::optional<DeviceStage> device;
  uint64_t device_scratch = 0;
  ThreadPool* threads(unsigned count) {
    if (!pool) pool.emplace(count);
    return &*pool;
  }
  Status choose_scratch(std::span<const HeldBoxes> held, const StageOptions& options);
  Status begin_device(const SlicePlan& plan, std::span<const DeviceWave> waves,
                      const StageOptions& options);
  Result<StagedDeltas> stage(std::span<const Delta> deltas, std::span<const HeldBoxes> held,
                             const StageOptions& options);
};

Status DeltaStager::Impl::choose_scratch(std::span<const HeldBoxes> held,
                                         const StageOptions& options) {
  if (options.scratch_bytes) {
    device_scratch = *options.scratch_bytes;
    return {};
  }
  if (device_scratch != 0) return {};
  for (const HeldBoxes& tensor : held) {
    if (tensor.memory != Memory::kCuda || tensor.boxes.empty()) continue;
    DW_ASSIGN_OR_RETURN(const uint64_t free, cuda::free_beside(tensor.boxes[0].data));
    device_scratch = std::clamp(free / kScratchShare, uint64_t{64} << 20, kMostScratch);
    return {};
  }
  return {};
}

Status DeltaStager::Impl::begin_device(const SlicePlan& plan, std::span<const DeviceWave> waves,
                                       const StageOptions& options) {
  DeviceStageOptions own{.most_list_bytes = options.device_bytes};
  for (const DeviceWave& wave : waves) {
    own.copy_bytes = std::max(own.copy_bytes, wave.copy_bytes);
    own.total_bytes += wave.copy_bytes;
  }
  if (!device) {
    DW_ASSIGN_OR_RETURN(
        device, DeviceStage::create(plan.device_arrays, device_scratch / 8, options.threads));
  }
  return device->begin(plan.device_arrays, own);
}

Result<StagedDeltas> DeltaStager::Impl::stage(std::span<const Delta> deltas,
                                              std::span<const HeldBoxes> held,
                                              const StageOptions& options) {
  DW_RETURN_IF_ERROR(choose_scratch(held, options));
  const uint64_t wave_bytes = device_scratch / 4 * 3;  // the rest is for payloads and results
  const Steps steps(deltas);
  SlicePlan plan;
  for (const HeldBoxes& tensor : held) {
    DW_RETURN_IF_ERROR(check_held(tensor));
    DW_ASSIGN_OR_RETURN(const std::vector<StageStep>* const own, steps.find(tensor));
    if (own != nullptr) plan.add(tensor, *own, wave_bytes);
  }
  const std::vector<DeviceWave> waves = make_waves(plan.device, wave_bytes);
  DeviceStage* on_device = nullptr;
  if (!plan.device_arrays.empty()) {
    DW_RETURN_IF_ERROR(begin_device(plan, waves, options));
    on_device = &*device;
  }
  HostStage host(plan.host, options.scratch_bytes.value_or(kHostScratch), threads(options.threads),
                 on_device);
  DW_RETURN_IF_ERROR(host.run());
  // If a tensor is held twice, either both copies are decoded or none.
  const auto leave_out = [&](std::vector<const StageSlice*>* slices) {
    std::erase_if(*slices, [&](const StageSlice* slice) {
      return host.undecoded().count(slice->held->name) != 0;
    });
  };
  std::vector<const StageSlice*> listed;
  for (const StageSlice& slice : plan.listed) listed.push_back(&slice);
  leave_out(&listed);
  DW_RETURN_IF_ERROR(stage_listed(listed, on_device));
  for (DeviceWave wave : waves) {
    leave_out(&wave.slices);
    DW_RETURN_IF_ERROR(stage_wave(wave, on_device));
  }
  for (const Delta& delta : deltas) DW_RETURN_IF_ERROR(delta.check_unchanged());
  DW_ASSIGN_OR_RETURN(
      Exchange exchange,
      Exchange::take(host.take_lists(), {options.device_bytes, options.threads}, on_device));
  return StagedDeltas{
      std::move(exchange), steps.names(), {host.undecoded().begin(), host.undecoded().end()}};
}

DeltaStager::DeltaStager() : impl_(std::make_unique<Impl>()) {}
DeltaStager::~DeltaStager() = default;
DeltaStager::DeltaStager(DeltaStager&&) noexcept = default;
DeltaStager& DeltaStager::operator=(DeltaStager&&) noexcept = default;

Result<Delta> DeltaStager::open(const std::vector<PartFile>& parts, unsigned threads) {
  return open_delta_parts(parts, impl_->threads(threads));
}

Result<StagedDeltas> DeltaStager::stage(std::span<const Delta> deltas,
                                        std::span<const HeldBoxes> held,
                                        const StageOptions& options) {
  return guard_memory("staging", [&] { return impl_->stage(deltas, held, options); });
}

}  // namespace deltawire

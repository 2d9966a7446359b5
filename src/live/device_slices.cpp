
#include <algorithm>

#include "codec/tight_payload.h"
#include "format/layout.h"
#include "live/slices.h"

namespace deltawire {
namespace {

constexpr uint64_t kCopyAlign = 256;

uint64_t copy_room(const StageSlice& slice) {
  return (slice.size_bytes + kCopyAlign - 1) / kCopyAlign * kCopyAlign;
}

// Whether the region is the entry's whole array, with contiguous rows.
bool is_whole(const DeltaEntry& entry, std::span<const Region> regions) {
  if (regions.size() != 1) return false;
  const Region& region = regions[0];
  return region.rows * region.columns == entry.num_elements() &&
         (region.rows <= 1 || region.stride == ptrdiff_t(region.columns * entry.layout().width));
}

bool tiles_are_held(const Delta::Entry& item, std::span<const Region> regions) {
  const Layout layout = item.entry.layout();
  const size_t n = size_t(item.entry.num_elements());
  const Result<RegionSet> held = RegionSet::of(layout, n, regions);
  const Result<tight::Payload> payload = tight::split_payload(layout, item.payload, n);
  if (!held.ok() || !payload.ok() || !payload->model.tiles.tiled()) return false;
  const Tiling tiling(payload->model.tiles, layout, n);
  for (size_t i = 0; i < tiling.size(); ++i) {
    const Tile tile = tiling[i];
    if (!payload->blocks[i].empty() && held->holder(tile) == nullptr && held->touches(tile)) {
      return false;
    }
  }
  return true;
}

bool device_applies(const Delta::Entry& item, std::span<const LocalBox> boxes) {
  const Result<std::vector<Region>> regions = regions_of(item.entry, boxes);
  if (!regions.ok()) return false;
  if (regions->empty()) return true;
  switch (item.entry.codec) {
    case CodecId::kTight:
      return item.payload.empty() || is_whole(item.entry, *regions) ||
             tiles_are_held(item, *regions);
    case CodecId::kRaw:
    case CodecId::kGaps:
    case CodecId::kExponents:
      return is_whole(item.entry, *regions);
    default:
      return false;
  }
}

// None: the slice does not change.
Result<std::optional<cuda::Patch>> patch_of(const Delta::Entry& item,
                                            std::span<const LocalBox> copies) {
  const DeltaEntry& entry = item.entry;
  DW_ASSIGN_OR_RETURN(std::vector<Region> regions, regions_of(entry, copies));
  const bool absolute = entry.codec == CodecId::kRaw || entry.codec == CodecId::kExponents;
  if (regions.empty() || (item.payload.empty() && !absolute)) return std::optional<cuda::Patch>();
  const Layout layout = entry.layout();
  cuda::Patch patch{{entry.dtype, nullptr, entry.box_bytes(), {layout.rows, layout.columns}},
                    std::string(find_codec(entry.codec)->name()),
                    item.payload};
  if (is_whole(entry, regions)) {
    patch.array.data = regions[0].data;
  } else {
    patch.regions = std::move(regions);
  }
  return std::optional(std::move(patch));
}

// A slice of a wave, with its copy.
struct CopiedSlice {
  const StageSlice* slice;
  std::vector<LocalBox> boxes;
  std::vector<CopiedRows> rows;
};

// Applies the payloads one by one, to find the bad one.
Status apply_singly(std::span<const CopiedSlice> slices, DeviceStage* stage) {
  for (const CopiedSlice& own : slices) {
    DW_RETURN_IF_ERROR(stage->copy(own.rows));
    for (const StageStep& step : own.slice->steps) {
      DW_ASSIGN_OR_RETURN(const std::optional<cuda::Patch> patch, patch_of(*step.item, own.boxes));
      if (patch) DW_RETURN_IF_ERROR(stage->apply({&*patch, 1}).at(step.item->place));
    }
  }
  return {};
}

Status apply_together(std::span<const CopiedSlice> slices, DeviceStage* stage) {
  size_t num_deltas = 0;
  for (const CopiedSlice& own : slices) {
    for (const StageStep& step : own.slice->steps)
      num_deltas = std::max(num_deltas, step.delta + 1);
  }
  for (size_t delta = 0; delta < num_deltas; ++delta) {
    std::vector<cuda::Patch> patches;
    for (const CopiedSlice& own : slices) {
      for (const StageStep& step : own.slice->steps) {
        if (step.delta != delta) continue;
        DW_ASSIGN_OR_RETURN(std::optional<cuda::Patch> patch, patch_of(*step.item, own.boxes));
        if (patch) patches.push_back(std::move(*patch));
      }
    }
    if (!patches.empty()) DW_RETURN_IF_ERROR(stage->apply(patches));
  }
  return {};
}

// Whether a GPU can make lists of the changes from live memory: a single delta of `tight`, of which
// each tile lies in a single box.
bool device_lists(const StageSlice& slice) {
  return std::all_of(slice.steps.begin(), slice.steps.end(), [&](const StageStep& step) {
    const Delta::Entry& item = *step.item;
    const DeltaEntry& entry = item.entry;
    if (entry.codec != CodecId::kTight || step.delta != slice.steps[0].delta) return false;
    if (item.payload.empty()) return true;
    const Result<std::vector<Region>> regions = regions_of(entry, slice.boxes);
    const size_t width = entry.layout().width;
    return regions.ok() &&
           std::all_of(regions->begin(), regions->end(),
                       [&](const Region& region) {
                         const size_t stride = region.rows < 2 ? 0 : size_t(region.stride) / width;
                         return (stride == 0 || stride >= region.columns) &&
                                region.rows * std::max(stride, region.columns) < UINT32_MAX;
                       }) &&
           (is_whole(entry, *regions) || tiles_are_held(item, *regions));
  });
}

// Whether a GPU can apply all steps: each tile lies in a single box, and other payloads are for
// arrays that are held whole. False for bad payloads too: the host reports what is wrong.
bool device_decodes(const StageSlice& slice) {
  const std::vector<LocalBox> boxes = slice.packed(slice.boxes[0].data);  // only the regions matter
  return std::all_of(slice.steps.begin(), slice.steps.end(),
                     [&](const StageStep& step) { return device_applies(*step.item, boxes); });
}

}  // namespace

void SlicePlan::add(const HeldBoxes& held, std::span<const StageStep> steps,
                    uint64_t device_slice_bytes) {
  constexpr uint64_t kHostSliceBytes = uint64_t{4} << 20;
  const bool on_gpu = held.memory == Memory::kCuda;
  std::vector<StageSlice> slices =
      cut_slices(held, steps, on_gpu ? device_slice_bytes : kHostSliceBytes);
  for (const StageSlice& slice : slices) {
    for (const LocalBox& box : slice.boxes) {
      if (on_gpu) device_arrays.push_back(box.data);
    }
  }
  std::vector<StageSlice>* to = &host;
  if (on_gpu && std::all_of(slices.begin(), slices.end(), device_lists)) {
    to = &listed;
  } else if (on_gpu && std::all_of(slices.begin(), slices.end(), device_decodes)) {
    to = &device;
  } else if (on_gpu) {
    slices = cut_slices(held, steps, kHostSliceBytes);
  }
  std::move(slices.begin(), slices.end(), std::back_inserter(*to));
}

std::vector<CopiedRows> copied_rows(const StageSlice& slice, uint8_t* copy) {
  const unsigned width = layout_of(slice.held->dtype).width;
  std::vector<CopiedRows> out;
  for (const LiveRows& rows : slice.rows()) {
    out.push_back({rows.data, copy, rows.rows, rows.columns, rows.stride, width});
    copy += out.back().size_bytes();
  }
  return out;
}

std::vector<DeviceWave> make_waves(std::span<const StageSlice> slices, uint64_t wave_bytes) {
  std::vector<DeviceWave> waves;
  for (const StageSlice& slice : slices) {
    const uint64_t room = copy_room(slice);
    if (waves.empty() || waves.back().copy_bytes + room > wave_bytes) waves.emplace_back();
    waves.back().slices.push_back(&slice);
    waves.back().copy_bytes += room;
  }
  return waves;
}

Status stage_listed(std::span<const StageSlice* const> slices, DeviceStage* stage) {
  std::vector<cuda::Patch> patches;
  std::vector<const std::string*> places;
  std::vector<CopiedRows> rows;
  for (const StageSlice* slice : slices) {
    const size_t before = patches.size();
    for (const StageStep& step : slice->steps) {
      DW_ASSIGN_OR_RETURN(std::optional<cuda::Patch> patch, patch_of(*step.item, slice->boxes));
      if (!patch) continue;
      patches.push_back(std::move(*patch));
      places.push_back(&step.item->place);
    }
    if (patches.size() == before) continue;
    const unsigned width = layout_of(slice->held->dtype).width;
    for (const LiveRows& own : slice->rows()) {
      rows.push_back({own.data, nullptr, own.rows, own.columns, own.stride, width});
    }
  }
  if (patches.empty()) return {};
  const Status listed = stage->list(patches, rows);
  if (listed.ok()) return {};
  for (size_t i = 0; i < patches.size(); ++i) {  // to find the bad one
    DW_RETURN_IF_ERROR(stage->list({&patches[i], 1}, {}).at(*places[i]));
  }
  return listed;
}

Status stage_wave(const DeviceWave& wave, DeviceStage* stage) {
  std::vector<CopiedSlice> slices;
  std::vector<CopiedRows> all;
  uint8_t* at = stage->copies();
  for (const StageSlice* slice : wave.slices) {
    slices.push_back({slice, slice->packed(at), copied_rows(*slice, at)});
    all.insert(all.end(), slices.back().rows.begin(), slices.back().rows.end());
    at += copy_room(*slice);
  }
  DW_RETURN_IF_ERROR(stage->copy(all));
  const Status applied = apply_together(slices, stage);
  if (!applied.ok()) {
    DW_RETURN_IF_ERROR(apply_singly(slices, stage));
    return applied;
  }
  return stage->collect(all);
}

}  // namespace deltawire

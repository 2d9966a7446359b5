// Cuts held tensors into slices that are decoded one by one, and describes their memory as rows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "device/device_stage.h"
#include "live/stage.h"

namespace deltawire {

// An entry of a delta for a held tensor or a box of it.
struct StageStep {
  size_t delta;
  const Delta::Entry* item;
};

// The tiles of a payload; none: it is not tiled.
struct TileExtent {
  uint64_t rows, columns;
};
std::optional<TileExtent> tile_of(const Delta::Entry& item);

// Live memory, in codec elements. `stride` is the distance between rows.
struct LiveRows {
  uint8_t* data;
  uint64_t rows, columns, stride;

  uint64_t size() const { return rows * columns; }
};

// Some or all rows of a held tensor. They can be decoded without the other rows.
struct StageSlice {
  const HeldBoxes* held;
  std::span<const StageStep> steps;  // in order
  std::vector<LocalBox> boxes;
  uint64_t size_bytes = 0;

  // The boxes packed one after the other, starting at `data`.
  std::vector<LocalBox> packed(uint8_t* data) const;
  // The memory of the boxes, in the order of packed().
  std::vector<LiveRows> rows() const;
};

// InvalidArgument for boxes that leave the tensor or cut a byte, for overlapping rows, and for
// strides that are not a multiple of the element's width.
Status check_held(const HeldBoxes& held);

// Slices of about `slice_bytes`, where payloads allow that. The steps must outlive the slices.
std::vector<StageSlice> cut_slices(const HeldBoxes& held, std::span<const StageStep> steps,
                                   uint64_t slice_bytes);

// Disjoint boxes that must be held in addition, so that the payloads of `deltas` for the tensor can
// be decoded: the rest of tiles that the held boxes cut, or of an array coded as one block. Only
// the last delta that needs old values counts, because a publisher always cuts tensors in the same
// way.
std::vector<Box> missing_boxes(std::span<const Delta> deltas, const HeldBoxes& held);

// Slices of tensors on a GPU, decoded there.

// Assigns slices to the host or to the device.
struct SlicePlan {
  // `listed`: a GPU makes their lists from live memory, without a copy.
  std::vector<StageSlice> host, device, listed;
  std::vector<const void*> device_arrays;  // of all slices

  void add(const HeldBoxes& held, std::span<const StageStep> steps, uint64_t device_slice_bytes);
};

// Pairs the memory of a slice with its copy, packed from `copy` on.
std::vector<CopiedRows> copied_rows(const StageSlice& slice, uint8_t* copy);

// Slices that are processed together. Their copies take at most `wave_bytes`, unless it is a single
// slice.
struct DeviceWave {
  std::vector<const StageSlice*> slices;
  uint64_t copy_bytes = 0;
};
std::vector<DeviceWave> make_waves(std::span<const StageSlice> slices, uint64_t wave_bytes);

// Makes lists of the changes of `listed` slices, all at once. Corruption names the part.
Status stage_listed(std::span<const StageSlice* const> slices, DeviceStage* stage);

// Collects the changes of the wave. Corruption names the part.
Status stage_wave(const DeviceWave& wave, DeviceStage* stage);

}  // namespace deltawire

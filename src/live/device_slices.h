// Slices of tensors on a GPU, decoded there.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/device_stage.h"
#include "live/slices.h"

namespace deltawire {

// Assigns slices to the host or to the device.
struct SlicePlan {
  std::vector<StageSlice> host, device;
  std::vector<const void*> device_arrays;  // of host and device slices

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

// Collects the changes of the wave. Corruption names the part.
Status stage_wave(const DeviceWave& wave, DeviceStage* stage);

}  // namespace deltawire

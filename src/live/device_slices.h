// Slices of tensors on a GPU, decoded there.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/device_stage.h"
#include "live/slices.h"

namespace deltawire {

// Which slices are decoded where.
struct SlicePlan {
  std::vector<StageSlice> host, device;
  std::vector<const void*> device_arrays;  // of both

  void add(const HeldBoxes& held, std::span<const StageStep> steps, uint64_t device_slice_bytes);
};

// The memory of a slice and its copy, packed from `copy` on.
std::vector<CopiedRows> copied_rows(const StageSlice& slice, uint8_t* copy);

// Slices that are worked on together: their copies take at most `wave_bytes`, unless it is one.
struct DeviceWave {
  std::vector<const StageSlice*> slices;
  uint64_t copy_bytes = 0;
};
std::vector<DeviceWave> make_waves(std::span<const StageSlice> slices, uint64_t wave_bytes);

// Lists what changes in them. Corruption names the part.
Status stage_wave(const DeviceWave& wave, DeviceStage* stage);

}  // namespace deltawire

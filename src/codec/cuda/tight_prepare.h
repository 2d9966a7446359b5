// What the host does before a device decodes `tight`: it takes payloads apart and reads what stands
// at the front of each block.
#pragma once

#include <span>
#include <vector>

#include "codec/cuda/device_parts.h"
#include "codec/tight_payload.h"
#include "kernels/cuda/tight_decode.h"

namespace deltawire::cuda {

// Everything the host knows of a batch. Arrays, tables and blocks are in pinned memory.
struct PreparedPatches {
  Buffer memory;
  std::vector<tight::Payload> payloads;
  std::span<TightDecodeArray> arrays;
  std::span<TableFrequencies> tables;
  std::span<TightDecodeBlock> blocks;  // in order of array and number; `bytes` of the payload

  size_t lay_out(Carve carve, size_t num_arrays, size_t num_tables, size_t num_blocks) {
    arrays = {carve.take<TightDecodeArray>(num_arrays), num_arrays};
    tables = {carve.take<TableFrequencies>(num_tables), num_tables};
    blocks = {carve.take<TightDecodeBlock>(num_blocks), num_blocks};
    return carve.size();
  }
};

// In memory that is taken from the workspace, and can be given back to it.
Result<PreparedPatches> prepare_patches(std::span<const NumberedPatch> patches,
                                        const DeviceOptions& options);

}  // namespace deltawire::cuda

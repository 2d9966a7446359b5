// How blocks of `tight` share the scratch: as many at a time as fit, in slots that are worked on
// side by side.
#pragma once

#include <span>
#include <vector>

#include "codec/cuda/device_parts.h"
#include "codec/cuda/workspace.h"
#include "kernels/cuda/tight_decode.h"

namespace deltawire::cuda {

inline constexpr size_t kTightSlots = Workspace::kCodecStreams;

// What some blocks bring.
struct ChunkLoad {
  uint64_t blocks = 0, coded = 0;  // of these, those with coded classes
  uint64_t changes = 0, values = 0, payload_bytes = 0;

  void add(const TightDecodeBlock& block);
};

// Blocks that are worked on together. Those of an array lie side by side in its payload, unless
// others between them are left out: one copy for each row of neighbours.
struct Chunk {
  size_t first_block = 0;
  ChunkLoad load;
  std::vector<Bytes> payload;
};

// Where it is on the device.
struct ChunkMemory {
  uint8_t* payload = nullptr;
  TightDecodeBlock* blocks = nullptr;
  TightStreams* streams = nullptr;
  uint32_t* ranks = nullptr;
  void* values = nullptr;

  // Returns the size. `memory` is null: only to learn that.
  size_t lay_out(uint8_t* memory, const ChunkLoad& load, unsigned width) {
    Carve carve(memory);
    payload = carve.take<uint8_t>(load.payload_bytes + 2 * kPayloadPadding) + kPayloadPadding;
    blocks = carve.take<TightDecodeBlock>(load.blocks);
    streams = carve.take<TightStreams>(load.blocks);
    ranks = carve.take<uint32_t>(load.changes);
    values = carve.take<uint8_t>(load.values * width);
    return carve.size();
  }
};

struct ChunkPlan {
  std::vector<Chunk> chunks;
  size_t num_slots = 0, slot_bytes = 0;
};
// All blocks of the patches, each told its place in its chunk. The slots fit the scratch, unless a
// single block does not fit its share.
ChunkPlan plan_chunks(std::span<const NumberedPatch> patches, std::span<TightDecodeBlock> blocks,
                      uint64_t scratch_bytes);

}  // namespace deltawire::cuda

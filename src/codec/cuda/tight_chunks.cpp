#include "codec/cuda/tight_chunks.h"

#include <algorithm>

namespace deltawire::cuda {
namespace {

// Changes of a chunk are counted in 32 bits.
constexpr uint64_t kMostChunkBytes = uint64_t{1} << 32;

uint64_t size_of(const ChunkLoad& load, unsigned width) {
  return ChunkMemory().lay_out(nullptr, load, width);
}

}  // namespace

void ChunkLoad::add(const TightDecodeBlock& block) {
  ++blocks;
  coded += block.only_units == 0 ? 1 : 0;
  changes += block.end[kMaxClasses - 1];
  payload_bytes += block.length;
  // Values are kept of coded classes.
  for (size_t c = 0; c < kMaxClasses; ++c) {
    if ((block.unit_classes >> c & 1) == 0) {
      values += block.end[c] - (c == 0 ? 0 : block.end[c - 1]);
    }
  }
}

ChunkPlan plan_chunks(std::span<const NumberedPatch> patches, std::span<TightDecodeBlock> blocks,
                      uint64_t scratch_bytes) {
  const unsigned width = patches[0].patch.layout.width;
  ChunkLoad all;
  for (const TightDecodeBlock& block : blocks) all.add(block);
  const bool at_once = size_of(all, width) <= std::min(scratch_bytes, kMostChunkBytes);
  const uint64_t share = scratch_bytes / kTightSlots / kCarveAlign * kCarveAlign;
  const uint64_t most = std::min(at_once ? scratch_bytes : share, kMostChunkBytes);
  ChunkPlan plan;
  for (size_t i = 0; i < blocks.size(); ++i) {
    TightDecodeBlock& block = blocks[i];
    ChunkLoad grown = plan.chunks.empty() ? ChunkLoad() : plan.chunks.back().load;
    grown.add(block);
    const bool begins = plan.chunks.empty() || size_of(grown, width) > most;
    if (begins) plan.chunks.push_back({i, {}, {}});
    Chunk& chunk = plan.chunks.back();
    const uint8_t* const from = patches[block.array].patch.payload.data() + block.bytes;
    if (begins || blocks[i - 1].array != block.array ||
        chunk.payload.back().data() + chunk.payload.back().size() != from) {
      chunk.payload.emplace_back(from, 0);
    }
    Bytes& payload = chunk.payload.back();
    payload = {payload.data(), payload.size() + block.length};
    block.bytes = chunk.load.payload_bytes;
    block.first_change = uint32_t(chunk.load.changes);
    block.first_value = uint32_t(chunk.load.values);
    chunk.load.add(block);
  }
  plan.num_slots = std::min(kTightSlots, plan.chunks.size());
  for (const Chunk& chunk : plan.chunks) {
    plan.slot_bytes = std::max<size_t>(plan.slot_bytes, size_of(chunk.load, width));
  }
  return plan;
}

}  // namespace deltawire::cuda

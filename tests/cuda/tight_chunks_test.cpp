// How blocks of `tight` share the scratch. Needs no GPU: no kernel is launched.
#include "codec/cuda/tight_chunks.h"

#include <gtest/gtest.h>

namespace deltawire::cuda {
namespace {

// One patch for each array, each with blocks of another kind.
struct Blocks {
  std::vector<std::vector<uint8_t>> payloads;
  std::vector<NumberedPatch> patches;
  std::vector<TightDecodeBlock> blocks;

  void add_array(size_t count, uint32_t length, uint32_t changes, uint32_t values, uint8_t width) {
    const uint32_t array = uint32_t(patches.size());
    for (size_t b = 0; b < count; ++b) {
      TightDecodeBlock block{};
      block.bytes = b * length;
      block.length = length;
      block.array = array;
      block.number = uint32_t(b);
      block.only_units = values == 0 ? 1 : 0;
      block.unit_classes = 0xfe;  // the first class is coded
      block.end[0] = values;
      for (size_t c = 1; c < kMaxClasses; ++c) block.end[c] = changes;
      blocks.push_back(block);
    }
    payloads.emplace_back(count * length);
    DevicePatch patch;
    patch.layout.width = width;
    patch.payload = payloads.back();
    patches.push_back({patch, array});
  }
  ChunkPlan plan(uint64_t scratch_bytes) { return plan_chunks(patches, blocks, scratch_bytes); }
};

// As steps of training and escapes of a damaged tensor alternate.
Blocks of_many_kinds(uint8_t width) {
  Blocks all;
  for (int i = 0; i < 3; ++i) {
    all.add_array(900, 100, 3000, 0, width);        // ranks
    all.add_array(900, 200, 2000, 2000, width);     // ranks and values
    all.add_array(2000, 6000, 10, 10, width);       // payload
    all.add_array(60'000, 20, 1, 0, width);         // blocks
    all.add_array(40, 300'000, 262'144, 3, width);  // few, each large
  }
  return all;
}

TEST(TightChunks, SlotsFitTheScratchForAnyBlocks) {
  for (const uint8_t width : {1, 2, 4, 8}) {
    for (const uint64_t scratch : {uint64_t{8} << 20, (uint64_t{24} << 20) + 4096}) {
      Blocks all = of_many_kinds(width);
      const ChunkPlan plan = all.plan(scratch);
      EXPECT_EQ(plan.num_slots, kTightSlots);
      EXPECT_LE(plan.num_slots * plan.slot_bytes, scratch) << unsigned(width);
      for (const Chunk& chunk : plan.chunks) {
        EXPECT_LE(ChunkMemory().lay_out(nullptr, chunk.load, width), plan.slot_bytes);
      }
      // Chunks are filled: no two consecutive ones fit into one slot.
      for (size_t i = 0; i + 1 < plan.chunks.size(); ++i) {
        ChunkLoad both = plan.chunks[i].load;
        const size_t next = plan.chunks[i + 1].first_block;
        both.add(all.blocks[next]);
        EXPECT_GT(ChunkMemory().lay_out(nullptr, both, width), scratch / kTightSlots - kCarveAlign);
      }
    }
  }
}

TEST(TightChunks, EveryBlockIsInOneChunkAtItsPlace) {
  Blocks all = of_many_kinds(2);
  const std::vector<TightDecodeBlock> before = all.blocks;
  const ChunkPlan plan = all.plan(uint64_t{8} << 20);
  size_t next = 0;
  for (const Chunk& chunk : plan.chunks) {
    EXPECT_EQ(chunk.first_block, next);
    ChunkLoad load;
    uint64_t copied = 0;
    for (const Bytes bytes : chunk.payload) copied += bytes.size();
    for (uint64_t b = 0; b < chunk.load.blocks; ++b, ++next) {
      const TightDecodeBlock& block = all.blocks[next];
      EXPECT_EQ(block.bytes, load.payload_bytes);
      EXPECT_EQ(block.first_change, load.changes);
      EXPECT_EQ(block.first_value, load.values);
      // The copies put its bytes there.
      uint64_t at = block.bytes;
      size_t piece = 0;
      while (at >= chunk.payload[piece].size()) at -= chunk.payload[piece++].size();
      EXPECT_EQ(chunk.payload[piece].data() + at,
                all.payloads[block.array].data() + before[next].bytes);
      load.add(block);
    }
    EXPECT_EQ(load.coded, chunk.load.coded);
    EXPECT_EQ(load.payload_bytes, copied);
  }
  EXPECT_EQ(next, all.blocks.size());
}

TEST(TightChunks, UsesOneChunkIfItFits) {
  Blocks all;
  all.add_array(10, 100, 50, 20, 2);
  const ChunkPlan plan = all.plan(uint64_t{8} << 20);
  ASSERT_EQ(plan.chunks.size(), 1);
  EXPECT_EQ(plan.num_slots, 1);
  EXPECT_EQ(plan.chunks[0].load.values, 200);
  EXPECT_EQ(plan.slot_bytes, ChunkMemory().lay_out(nullptr, plan.chunks[0].load, 2));
  // One byte too much for one chunk gives several.
  EXPECT_GT(all.plan(plan.slot_bytes - 1).chunks.size(), 1);
}

TEST(TightChunks, OversizedBlockGetsItsOwnChunk) {
  Blocks all;
  all.add_array(3, 1 << 20, 262'144, 0, 2);
  const ChunkPlan plan = all.plan(uint64_t{4} << 20);
  EXPECT_EQ(plan.chunks.size(), 3);
  EXPECT_GE(plan.slot_bytes, size_t{2} << 20);
}

}  // namespace
}  // namespace deltawire::cuda

// `tight` onto a device, as many blocks at a time as the scratch has room for.
#include <algorithm>
#include <array>

#include "codec/cuda/carve.h"
#include "codec/cuda/device_parts.h"
#include "codec/cuda/patch_status.h"
#include "codec/cuda/tight_prepare.h"
#include "codec/cuda/tight_tables.h"
#include "codec/cuda/workspace.h"

namespace deltawire::cuda {
namespace {

constexpr size_t kNumSlots = Workspace::kCodecStreams;

// Blocks that are worked on together. Those of an array lie side by side in its payload: one copy
// for each array.
struct Chunk {
  size_t begin = 0, end = 0;  // of the blocks
  size_t num_coded = 0;
  uint64_t changes = 0, values = 0, payload_bytes = 0;
  std::vector<Bytes> payload;  // of which those are
};

// Changes whose values have to be kept: those of coded classes.
uint64_t num_values(const TightDecodeBlock& block) {
  uint64_t count = 0;
  for (size_t c = 0; c < kMaxClasses; ++c) {
    if ((block.unit_classes >> c & 1) == 0) count += block.end[c] - (c == 0 ? 0 : block.end[c - 1]);
  }
  return count;
}

uint64_t block_cost(const TightDecodeBlock& block, unsigned width) {
  return block.length + block.end[kMaxClasses - 1] * sizeof(uint32_t) + num_values(block) * width +
         sizeof(TightDecodeBlock) + sizeof(TightStreams);
}

// Changes of a chunk are counted in 32 bits.
constexpr uint64_t kMostChunkBytes = uint64_t{1} << 32;

// Of all blocks, each with what its kernels have to be told of its place in its chunk.
std::vector<Chunk> make_chunks(std::span<const NumberedPatch> patches,
                               std::span<TightDecodeBlock> blocks, uint64_t scratch_bytes) {
  const unsigned width = patches[0].patch.layout.width;
  uint64_t sum = 0;
  for (const TightDecodeBlock& block : blocks) sum += block_cost(block, width);
  const bool at_once = sum <= std::min(scratch_bytes, kMostChunkBytes);
  const uint64_t budget = std::min(at_once ? sum : scratch_bytes / kNumSlots, kMostChunkBytes);
  std::vector<Chunk> chunks;
  uint64_t cost = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    TightDecodeBlock& block = blocks[i];
    const uint64_t own = block_cost(block, width);
    const bool new_chunk = chunks.empty() || cost + own > budget;
    if (new_chunk) {
      chunks.emplace_back().begin = i;
      cost = 0;
    }
    Chunk& chunk = chunks.back();
    const uint8_t* const from = patches[block.array].patch.payload.data() + block.bytes;
    if (new_chunk || blocks[i - 1].array != block.array) chunk.payload.emplace_back(from, 0);
    chunk.payload.back() = {chunk.payload.back().data(),
                            chunk.payload.back().size() + block.length};
    block.bytes = chunk.payload_bytes;
    block.first_change = uint32_t(chunk.changes);
    block.first_value = uint32_t(chunk.values);
    chunk.end = i + 1;
    chunk.num_coded += block.only_units == 0 ? 1 : 0;
    chunk.changes += block.end[kMaxClasses - 1];
    chunk.values += num_values(block);
    chunk.payload_bytes += block.length;
    cost += own;
  }
  return chunks;
}

// What one chunk occupies on the device.
struct Slot {
  TightDecodeWork work{};
  uint8_t* payload = nullptr;
  TightDecodeBlock* blocks = nullptr;

  size_t lay_out(uint8_t* memory, const Chunk& most, unsigned width) {
    Carve carve(memory);
    payload = carve.take<uint8_t>(most.payload_bytes + 2 * kPayloadPadding) + kPayloadPadding;
    blocks = carve.take<TightDecodeBlock>(most.end);
    work.blocks = blocks;
    work.payload = payload;
    work.streams = carve.take<TightStreams>(most.end);
    work.ranks = carve.take<uint32_t>(most.changes);
    work.values = carve.take<uint8_t>(most.values * width);
    return carve.size();
  }
};

class TightApplier {
 public:
  TightApplier(std::span<const NumberedPatch> patches, const PreparedPatches& prepared,
               Workspace* workspace, Stream stream)
      : patches_(patches),
        prepared_(prepared),
        workspace_(*workspace),
        width_(patches[0].patch.layout.width),
        stream_(stream) {}

  Status open(const std::vector<Chunk>& chunks) {
    Chunk most;  // `end`: how many blocks
    for (const Chunk& chunk : chunks) {
      most.end = std::max(most.end, chunk.end - chunk.begin);
      most.changes = std::max(most.changes, chunk.changes);
      most.values = std::max(most.values, chunk.values);
      most.payload_bytes = std::max(most.payload_bytes, chunk.payload_bytes);
    }
    num_slots_ = std::min(kNumSlots, chunks.size());
    Slot measure;
    const size_t slot_bytes = measure.lay_out(nullptr, most, width_);
    const size_t array_bytes = prepared_.arrays.size() * sizeof(TightDecodeArray);
    const size_t table_bytes = prepared_.tables.size() * sizeof(TableFrequencies);
    TightDecodeArray* arrays = nullptr;
    TableFrequencies* frequencies = nullptr;
    const auto lay_out = [&](Carve carve) {
      arrays = carve.take<TightDecodeArray>(prepared_.arrays.size());
      frequencies = carve.take<TableFrequencies>(prepared_.tables.size());
      return carve.size();
    };
    DW_ASSIGN_OR_RETURN(uint8_t* const models,
                        workspace_.get(Workspace::kModels, lay_out(Carve(nullptr))));
    lay_out(Carve(models));
    DW_ASSIGN_OR_RETURN(
        uint8_t* const tables_at,
        workspace_.get(Workspace::kTables, prepared_.tables.size() * sizeof(DecodeTable)));
    auto* const tables = reinterpret_cast<DecodeTable*>(tables_at);
    DW_ASSIGN_OR_RETURN(uint8_t* const status_at,
                        workspace_.get(Workspace::kStatus, sizeof(PatchStatus)));
    status_ = reinterpret_cast<PatchStatus*>(status_at);
    DW_ASSIGN_OR_RETURN(uint8_t* const memory,
                        workspace_.get(Workspace::kSlots, num_slots_ * slot_bytes));
    DW_ASSIGN_OR_RETURN(const GapTables* gaps, gap_tables(stream_));
    DW_RETURN_IF_ERROR(copy(arrays, prepared_.arrays.data(), array_bytes, stream_));
    DW_RETURN_IF_ERROR(copy(frequencies, prepared_.tables.data(), table_bytes, stream_));
    DW_RETURN_IF_ERROR(expand_tables(frequencies, tables, prepared_.tables.size(), stream_));
    DW_RETURN_IF_ERROR(fill_zero(status_, sizeof(PatchStatus), stream_));
    for (size_t s = 0; s < num_slots_; ++s) {
      slots_[s].lay_out(memory + s * slot_bytes, most, width_);
      TightDecodeWork& work = slots_[s].work;
      work.arrays = arrays;
      work.gap_tables = gaps->decode.data<SlotTable>();
      work.value_tables = tables;
      work.status = status_;
      DW_ASSIGN_OR_RETURN(streams_[s].scans, workspace_.stream(s));
      DW_ASSIGN_OR_RETURN(streams_[s].chains, workspace_.stream(Workspace::kChains + s));
      DW_RETURN_IF_ERROR(follow(streams_[s].chains, stream_));
    }
    return {};
  }

  enum Pass : uint8_t {
    kCheck,          // nothing is written
    kCheckAndWrite,  // each chunk is checked before anything of it is written
    kPatch,          // has been checked already, or need not be: written as it is decoded
  };
  // Goes through all chunks. Later work of the caller's stream comes after.
  Status run(const std::vector<Chunk>& chunks, Pass pass) {
    for (size_t i = 0; i < chunks.size(); ++i) {
      const size_t s = i % num_slots_;
      DW_RETURN_IF_ERROR(run_chunk(chunks[i], slots_[s], streams_[s], pass));
    }
    for (size_t s = 0; s < num_slots_; ++s) DW_RETURN_IF_ERROR(follow(stream_, streams_[s].chains));
    return {};
  }

  Status result() {
    PatchStatus found{};
    DW_RETURN_IF_ERROR(copy(&found, status_, sizeof found, stream_));
    DW_RETURN_IF_ERROR(wait(stream_));
    return to_status(found, "block", [&](uint32_t array) { return patches_[array].number; });
  }

 private:
  Status run_chunk(const Chunk& chunk, Slot& slot, TightDecodeStreams streams, Pass pass) {
    uint8_t* to = slot.payload;
    for (const Bytes bytes : chunk.payload) {
      DW_RETURN_IF_ERROR(copy(to, bytes.data(), bytes.size(), streams.chains));
      to += bytes.size();
    }
    const size_t count = chunk.end - chunk.begin;
    DW_RETURN_IF_ERROR(copy(slot.blocks, prepared_.blocks.data() + chunk.begin,
                            count * sizeof(TightDecodeBlock), streams.chains));
    slot.work.num_blocks = uint32_t(count);
    slot.work.num_coded = uint32_t(chunk.num_coded);
    if (pass == kPatch) return patch_tight(slot.work, width_, streams);
    DW_RETURN_IF_ERROR(check_tight(slot.work, width_, streams));
    return pass == kCheckAndWrite ? write_tight(slot.work, width_, streams) : Status();
  }

  const std::span<const NumberedPatch> patches_;
  const PreparedPatches& prepared_;
  Workspace& workspace_;
  const unsigned width_;
  const Stream stream_;
  size_t num_slots_ = 0;
  PatchStatus* status_ = nullptr;
  std::array<Slot, kNumSlots> slots_;
  std::array<TightDecodeStreams, kNumSlots> streams_{};
};

}  // namespace

Status apply_tight_patches(std::span<const NumberedPatch> patches, const DeviceOptions& options,
                           bool write, Stream stream, DeviceTimes* times) {
  DW_ASSIGN_OR_RETURN(const PreparedPatches prepared, prepare_patches(patches, options));
  const std::vector<Chunk> chunks = make_chunks(patches, prepared.blocks, options.scratch_bytes);
  TightApplier applier(patches, prepared, options.workspace, stream);
  DW_RETURN_IF_ERROR(applier.open(chunks));
  DW_ASSIGN_OR_RETURN(Stopwatch watch, Stopwatch::create());
  DW_RETURN_IF_ERROR(watch.start(stream));
  TightApplier::Pass pass = !write                   ? TightApplier::kCheck
                            : options.all_or_nothing ? TightApplier::kCheckAndWrite
                                                     : TightApplier::kPatch;
  if (pass == TightApplier::kCheckAndWrite && chunks.size() > 1) {
    DW_RETURN_IF_ERROR(applier.run(chunks, TightApplier::kCheck));
    DW_RETURN_IF_ERROR(applier.result());
    pass = TightApplier::kPatch;
  }
  DW_RETURN_IF_ERROR(applier.run(chunks, pass));
  DW_ASSIGN_OR_RETURN(const double time, watch.stop(stream));
  if (times != nullptr) times->coding += time;
  return applier.result();
}

}  // namespace deltawire::cuda

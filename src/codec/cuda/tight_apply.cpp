// `tight` onto a device. The host takes payloads apart and reads what stands at the front of each
// block; the device does the rest, as many blocks at a time as the scratch has room for.
#include <algorithm>
#include <array>
#include <cstring>

#include "codec/checks.h"
#include "codec/cuda/carve.h"
#include "codec/cuda/device_parts.h"
#include "codec/cuda/patch_status.h"
#include "codec/cuda/tight_tables.h"
#include "codec/cuda/workspace.h"
#include "codec/tight_payload.h"

namespace deltawire::cuda {
namespace {

using tight::BlockHead;
using tight::Payload;

constexpr size_t kNumSlots = Workspace::kCodecStreams;

// Everything the host knows of a batch. Arrays, tables and blocks are in pinned memory.
struct Prepared {
  std::vector<Payload> payloads;
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

Status prepare_block(const Payload& payload, Bytes bytes, TightDecodeBlock* block) {
  if (bytes.size() <= tight::kStateBytes) {
    return corruption("tight block: too short for its coder states");
  }
  uint8_t padded[tight::kMaxHeadBytes + 16] = {};
  std::memcpy(padded, bytes.data(), std::min(bytes.size(), tight::kMaxHeadBytes));
  BitReader bits(padded);
  BlockHead head;
  const tight::Model& model = payload.model;
  if (const char* wrong = tight::read_block_head(model, block->num_elements, &bits, &head)) {
    return corruption(std::string("tight block: ") + wrong);
  }
  block->length = uint32_t(bytes.size());
  block->bits_at = uint32_t(bits.num_bits());
  block->unit_classes = head.unit_classes;
  block->only_units = 1;
  for (size_t c = 0; c < kMaxClasses; ++c) {
    block->end[c] = head.end[c];
    const uint32_t count = head.end[c] - (c == 0 ? 0 : head.end[c - 1]);
    const uint32_t mean =
        tight::mean_count(model.mean_codes[c], block->num_elements, model.block_log2);
    if (count != 0 && (head.unit_classes >> c & 1) == 0) block->only_units = 0;
    block->q[c] = model.fitted ? tight::block_q(model.q[c], mean, count) : model.q[c];
  }
  return {};
}

Result<Prepared> prepare(std::span<const NumberedPatch> patches, const DeviceOptions& options) {
  ThreadPool* const pool = options.pool;
  Prepared all;
  const size_t num = patches.size();
  all.payloads.resize(num);
  std::vector<Status> failures(num);
  parallel_for(pool, num, [&](size_t i, unsigned) {
    const DevicePatch& patch = patches[i].patch;
    Result<Payload> split = tight::split_payload(patch.layout, patch.payload, patch.num_elements);
    if (split.ok()) {
      all.payloads[i] = std::move(*split);
    } else {
      failures[i] = split.status();
    }
  });
  const auto check = [&]() -> Status {
    for (size_t i = 0; i < num; ++i) {
      if (!failures[i].ok()) {
        return std::move(failures[i]).at("patch " + std::to_string(patches[i].number));
      }
    }
    return {};
  };
  DW_RETURN_IF_ERROR(check());

  std::vector<size_t> first_block(num), first_table(num);
  size_t num_blocks = 0, num_tables = 0;
  for (size_t i = 0; i < num; ++i) {
    const Payload& payload = all.payloads[i];
    first_table[i] = num_tables;
    num_tables += num_value_tables(payload.model);
    first_block[i] = num_blocks;
    num_blocks += size_t(std::count_if(payload.blocks.begin(), payload.blocks.end(),
                                       [](Bytes block) { return !block.empty(); }));
  }
  const size_t size = all.lay_out(Carve(nullptr), num, num_tables, num_blocks);
  DW_ASSIGN_OR_RETURN(uint8_t* const host, options.workspace->get(Workspace::kHostTables, size));
  all.lay_out(Carve(host), num, num_tables, num_blocks);
  parallel_for(pool, num, [&](size_t i, unsigned) {
    const Payload& payload = all.payloads[i];
    const DevicePatch& patch = patches[i].patch;
    all.arrays[i] = {patch.data,
                     make_keys(payload.model.split),
                     {},
                     uint32_t(first_table[i]),
                     payload.model.num_contexts};
    fill_contexts(payload.model, all.arrays[i].context_of_key);
    make_value_tables(payload.model, patch.layout.width, &all.tables[first_table[i]]);
    TightDecodeBlock* block = all.blocks.data() + first_block[i];
    const uint64_t block_elements = uint64_t{1} << payload.model.block_log2;
    for (size_t b = 0; b < payload.blocks.size() && failures[i].ok(); ++b) {
      const Bytes bytes = payload.blocks[b];
      if (bytes.empty()) continue;
      block->array = uint32_t(i);
      block->number = uint32_t(b);
      block->first_element = b * block_elements;
      block->num_elements =
          uint32_t(std::min(block_elements, patch.num_elements - block->first_element));
      block->bytes = uint64_t(bytes.data() - patch.payload.data());
      failures[i] = prepare_block(payload, bytes, block).at("block " + std::to_string(b));
      ++block;
    }
  });
  DW_RETURN_IF_ERROR(check());
  return all;
}

// Blocks that are worked on together. Those of an array lie side by side in its payload: one copy
// for each array.
struct Chunk {
  size_t begin = 0, end = 0;  // of the blocks
  uint64_t changes = 0, values = 0, payload_bytes = 0;
  std::vector<Bytes> payload;  // of which those are
};

// Changes whose values have to be kept.
uint64_t num_values(const TightDecodeBlock& block) {
  return block.only_units != 0 ? 0 : block.end[kMaxClasses - 1];
}

uint64_t block_cost(const TightDecodeBlock& block, unsigned width) {
  return block.length + block.end[kMaxClasses - 1] * sizeof(uint32_t) +
         num_values(block) * (sizeof(uint32_t) + uint64_t{width}) + sizeof(TightDecodeBlock) +
         sizeof(TightStreams);
}

// Of all blocks, each with what its kernels have to be told of its place in its chunk.
std::vector<Chunk> make_chunks(std::span<const NumberedPatch> patches,
                               std::span<TightDecodeBlock> blocks, uint64_t scratch_bytes) {
  const unsigned width = patches[0].patch.layout.width;
  uint64_t sum = 0;
  for (const TightDecodeBlock& block : blocks) sum += block_cost(block, width);
  const uint64_t budget = sum <= scratch_bytes ? scratch_bytes : scratch_bytes / kNumSlots;
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
    work.positions = carve.take<uint32_t>(most.changes);
    work.values = carve.take<uint8_t>(most.values * width);
    work.order = carve.take<uint32_t>(most.values);
    return carve.size();
  }
};

class TightApplier {
 public:
  TightApplier(std::span<const NumberedPatch> patches, const Prepared& prepared,
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
      work.gap_tables = gaps->decode.data<DecodeTable>();
      work.value_tables = tables;
      work.status = status_;
      DW_ASSIGN_OR_RETURN(streams_[s], workspace_.stream(s));
      DW_RETURN_IF_ERROR(follow(streams_[s], stream_));
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
    for (size_t s = 0; s < num_slots_; ++s) DW_RETURN_IF_ERROR(follow(stream_, streams_[s]));
    return {};
  }

  Status result() {
    PatchStatus found{};
    DW_RETURN_IF_ERROR(copy(&found, status_, sizeof found, stream_));
    DW_RETURN_IF_ERROR(wait(stream_));
    return to_status(found, "block", [&](uint32_t array) { return patches_[array].number; });
  }

 private:
  Status run_chunk(const Chunk& chunk, Slot& slot, Stream stream, Pass pass) {
    uint8_t* to = slot.payload;
    for (const Bytes bytes : chunk.payload) {
      DW_RETURN_IF_ERROR(copy(to, bytes.data(), bytes.size(), stream));
      to += bytes.size();
    }
    const size_t count = chunk.end - chunk.begin;
    DW_RETURN_IF_ERROR(copy(slot.blocks, prepared_.blocks.data() + chunk.begin,
                            count * sizeof(TightDecodeBlock), stream));
    slot.work.num_blocks = uint32_t(count);
    if (pass == kPatch) return patch_tight(slot.work, width_, stream);
    DW_RETURN_IF_ERROR(check_tight(slot.work, width_, stream));
    return pass == kCheckAndWrite ? write_tight(slot.work, width_, stream) : Status();
  }

  const std::span<const NumberedPatch> patches_;
  const Prepared& prepared_;
  Workspace& workspace_;
  const unsigned width_;
  const Stream stream_;
  size_t num_slots_ = 0;
  PatchStatus* status_ = nullptr;
  std::array<Slot, kNumSlots> slots_;
  std::array<Stream, kNumSlots> streams_{};
};

}  // namespace

Status apply_tight_patches(std::span<const NumberedPatch> patches, const DeviceOptions& options,
                           bool write, Stream stream, DeviceTimes* times) {
  DW_ASSIGN_OR_RETURN(const Prepared prepared, prepare(patches, options));
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

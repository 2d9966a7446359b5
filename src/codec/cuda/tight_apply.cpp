// `tight` onto a device. The host takes payloads apart and reads what stands at the front of each
// block; the device does the rest, as many blocks at a time as the scratch has room for.
#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

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

constexpr size_t kNumSlots = 2;  // one is filled while the other is worked on

// Everything the host knows of a batch.
struct Prepared {
  std::vector<Payload> payloads;
  std::vector<TightDecodeArray> arrays;
  std::vector<TableFrequencies> tables;
  std::vector<TightDecodeBlock> blocks;  // in order of array and number; `bytes` of the payload
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
  for (size_t c = 0; c < kMaxClasses; ++c) {
    block->end[c] = head.end[c];
    const uint32_t count = head.end[c] - (c == 0 ? 0 : head.end[c - 1]);
    const uint32_t mean =
        tight::mean_count(model.mean_codes[c], block->num_elements, model.block_log2);
    block->q[c] = model.fitted ? tight::block_q(model.q[c], mean, count) : model.q[c];
  }
  return {};
}

Result<Prepared> prepare(std::span<const NumberedPatch> patches, ThreadPool* pool) {
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

  std::vector<size_t> first_block(num);
  size_t num_blocks = 0, num_tables = 0;
  for (size_t i = 0; i < num; ++i) {
    const Payload& payload = all.payloads[i];
    TightDecodeArray array{patches[i].patch.data,
                           make_keys(payload.model.split),
                           {},
                           uint32_t(num_tables),
                           payload.model.num_contexts};
    fill_contexts(payload.model, array.context_of_key);
    all.arrays.push_back(array);
    num_tables += num_value_tables(payload.model);
    first_block[i] = num_blocks;
    num_blocks += size_t(std::count_if(payload.blocks.begin(), payload.blocks.end(),
                                       [](Bytes block) { return !block.empty(); }));
  }
  all.tables.resize(num_tables);
  all.blocks.resize(num_blocks);
  parallel_for(pool, num, [&](size_t i, unsigned) {
    const Payload& payload = all.payloads[i];
    const DevicePatch& patch = patches[i].patch;
    make_decode_tables(payload.model, patch.layout.width,
                       all.tables.data() + all.arrays[i].first_table);
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

// Blocks that are worked on together.
struct Chunk {
  size_t begin, end;
  uint64_t changes, payload_bytes;
};

uint64_t block_cost(const TightDecodeBlock& block, unsigned width) {
  return block.length + block.end[kMaxClasses - 1] * (2 * sizeof(uint32_t) + uint64_t{width}) +
         sizeof(TightDecodeBlock) + sizeof(TightStreams);
}

std::vector<Chunk> make_chunks(const std::vector<TightDecodeBlock>& blocks, unsigned width,
                               uint64_t budget) {
  std::vector<Chunk> chunks;
  uint64_t cost = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const uint64_t own = block_cost(blocks[i], width);
    if (chunks.empty() || cost + own > budget) {
      chunks.push_back({i, i, 0, 0});
      cost = 0;
    }
    Chunk& chunk = chunks.back();
    chunk.end = i + 1;
    chunk.changes += blocks[i].end[kMaxClasses - 1];
    chunk.payload_bytes += blocks[i].length;
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
    work.values = carve.take<uint8_t>(most.changes * width);
    work.order = carve.take<uint32_t>(most.changes);
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
    Chunk most{0, 0, 0, 0};  // `end`: how many blocks
    for (const Chunk& chunk : chunks) {
      most.end = std::max(most.end, chunk.end - chunk.begin);
      most.changes = std::max(most.changes, chunk.changes);
      most.payload_bytes = std::max(most.payload_bytes, chunk.payload_bytes);
    }
    num_slots_ = std::min(kNumSlots, chunks.size());
    Slot measure;
    const size_t slot_bytes = measure.lay_out(nullptr, most, width_);
    const size_t array_bytes = prepared_.arrays.size() * sizeof(TightDecodeArray);
    const size_t table_bytes = prepared_.tables.size() * sizeof(TableFrequencies);
    Carve models(nullptr);
    (void)models.take<uint8_t>(array_bytes);
    (void)models.take<uint8_t>(table_bytes);
    DW_ASSIGN_OR_RETURN(uint8_t* const at, workspace_.get(Workspace::kModels, models.size()));
    Carve pieces(at);
    auto* const arrays = pieces.take<TightDecodeArray>(prepared_.arrays.size());
    auto* const frequencies = pieces.take<TableFrequencies>(prepared_.tables.size());
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

  // Decodes all chunks; with `write` also patches. Later work of the caller's stream comes after.
  Status run(const std::vector<Chunk>& chunks, bool write) {
    for (size_t i = 0; i < chunks.size(); ++i) {
      const size_t s = i % num_slots_;
      DW_RETURN_IF_ERROR(run_chunk(chunks[i], slots_[s], streams_[s], write));
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
  Status run_chunk(const Chunk& chunk, Slot& slot, Stream stream, bool write) {
    std::vector<TightDecodeBlock> blocks(prepared_.blocks.begin() + ptrdiff_t(chunk.begin),
                                         prepared_.blocks.begin() + ptrdiff_t(chunk.end));
    uint64_t at = 0, changes = 0;
    // Blocks of an array lie side by side in its payload: one copy for each array.
    for (size_t i = 0; i < blocks.size();) {
      const Bytes payload = patches_[blocks[i].array].patch.payload;
      const uint64_t from = blocks[i].bytes;
      uint64_t size = 0;
      size_t j = i;
      for (; j < blocks.size() && blocks[j].array == blocks[i].array; ++j) {
        const uint64_t own = blocks[j].length;
        blocks[j].bytes = at + size;
        blocks[j].first_change = uint32_t(changes);
        changes += blocks[j].end[kMaxClasses - 1];
        size += own;
      }
      DW_RETURN_IF_ERROR(copy(slot.payload + at, payload.data() + from, size, stream));
      at += size;
      i = j;
    }
    DW_RETURN_IF_ERROR(
        copy(slot.blocks, blocks.data(), blocks.size() * sizeof(TightDecodeBlock), stream));
    slot.work.num_blocks = uint32_t(blocks.size());
    DW_RETURN_IF_ERROR(decode_tight(slot.work, width_, stream));
    return write ? scatter_tight(slot.work, width_, stream) : Status();
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
  DW_ASSIGN_OR_RETURN(const Prepared prepared, prepare(patches, options.pool));
  const unsigned width = patches[0].patch.layout.width;
  std::vector<Chunk> chunks = make_chunks(prepared.blocks, width, options.scratch_bytes);
  if (chunks.size() > 1) {
    chunks = make_chunks(prepared.blocks, width, options.scratch_bytes / kNumSlots);
  }
  TightApplier applier(patches, prepared, options.workspace, stream);
  DW_RETURN_IF_ERROR(applier.open(chunks));
  if (write && chunks.size() > 1 && options.all_or_nothing) {
    DW_RETURN_IF_ERROR(applier.run(chunks, false));
    DW_RETURN_IF_ERROR(applier.result());
  }
  DW_ASSIGN_OR_RETURN(Stopwatch watch, Stopwatch::create());
  DW_RETURN_IF_ERROR(watch.start(stream));
  DW_RETURN_IF_ERROR(applier.run(chunks, write));
  DW_ASSIGN_OR_RETURN(const double time, watch.stop(stream));
  if (times != nullptr) times->coding += time;
  return applier.result();
}

}  // namespace deltawire::cuda

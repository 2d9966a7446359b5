#include "codec/cuda/tight_prepare.h"

#include <algorithm>
#include <cstring>

#include "codec/checks.h"
#include "codec/cuda/tight_tables.h"
#include "codec/cuda/workspace.h"

namespace deltawire::cuda {
namespace {

using tight::BlockHead;
using tight::Payload;

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
        tight::mean_count(model.mean_codes[c], block->num_elements, model.tiles.block_log2);
    if (count != 0 && (head.unit_classes >> c & 1) == 0) block->only_units = 0;
    block->q[c] = model.fitted ? tight::block_q(model.q[c], mean, count) : model.q[c];
  }
  return {};
}

}  // namespace

Result<PreparedPatches> prepare_patches(std::span<const NumberedPatch> patches,
                                        const DeviceOptions& options) {
  ThreadPool* const pool = options.pool;
  PreparedPatches all;
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
  DW_ASSIGN_OR_RETURN(all.memory, options.workspace->take_pinned(size));
  all.lay_out(Carve(all.memory.data()), num, num_tables, num_blocks);
  parallel_for(pool, num, [&](size_t i, unsigned) {
    const Payload& payload = all.payloads[i];
    const DevicePatch& patch = patches[i].patch;
    all.arrays[i] = {
        make_keys(payload.model.split), {}, uint32_t(first_table[i]), payload.model.num_contexts};
    fill_contexts(payload.model, all.arrays[i].context_of_key);
    make_value_tables(payload.model, patch.layout.width, &all.tables[first_table[i]]);
    TightDecodeBlock* block = all.blocks.data() + first_block[i];
    const Tiling tiling(payload.model.tiles, patch.layout, patch.num_elements);
    for (size_t b = 0; b < payload.blocks.size() && failures[i].ok(); ++b) {
      const Bytes bytes = payload.blocks[b];
      if (bytes.empty()) continue;
      block->array = uint32_t(i);
      block->number = uint32_t(b);
      block->data = patch.data;
      block->place = place_of(tiling[b], tiling.stride());
      block->num_elements = uint32_t(tiling[b].size());
      block->bytes = uint64_t(bytes.data() - patch.payload.data());
      failures[i] = prepare_block(payload, bytes, block).at("block " + std::to_string(b));
      ++block;
    }
  });
  DW_RETURN_IF_ERROR(check());
  return all;
}

Result<BlockKinds> count_block_kinds(const DevicePatch& patch) {
  DW_ASSIGN_OR_RETURN(const Payload payload,
                      tight::split_payload(patch.layout, patch.payload, patch.num_elements));
  const Tiling tiling(payload.model.tiles, patch.layout, patch.num_elements);
  BlockKinds kinds;
  for (size_t b = 0; b < payload.blocks.size(); ++b) {
    if (payload.blocks[b].empty()) continue;
    TightDecodeBlock block{};
    block.num_elements = uint32_t(tiling[b].size());
    DW_RETURN_IF_ERROR(prepare_block(payload, payload.blocks[b], &block));
    ++kinds.num_blocks;
    if (block.only_units != 0) continue;
    ++kinds.num_coded;
    for (size_t c = 0; c < kMaxClasses; ++c) {
      const bool has_changes = block.end[c] != (c == 0 ? 0 : block.end[c - 1]);
      if (has_changes && (block.unit_classes >> c & 1) != 0) {
        ++kinds.num_mixed;
        break;
      }
    }
  }
  return kinds;
}

}  // namespace deltawire::cuda

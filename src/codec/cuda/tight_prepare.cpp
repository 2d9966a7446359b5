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

Status check_regions(const DevicePatch& patch) {
  const uint64_t columns = patch.layout.columns;
  if (columns == 0 || patch.num_elements % columns != 0) {
    return invalid_argument("regions of an array that is not a matrix");
  }
  const uint64_t rows = patch.num_elements / columns;
  for (const DeviceRegion& region : patch.regions) {
    if (region.first_row > rows || region.rows > rows - region.first_row ||
        region.first_column > columns || region.columns > columns - region.first_column) {
      return invalid_argument("a region is not in its array");
    }
    if (region.data == nullptr || region.row_stride < region.columns ||
        region.row_stride >> 32 != 0) {
      return invalid_argument("a region has no data, or a row stride of " +
                              std::to_string(region.row_stride));
    }
  }
  return {};
}

// Where a block is to be written; no data: nowhere.
struct PlacedBlock {
  void* data = nullptr;
  BlockPlace place = {};
};

Result<PlacedBlock> place_block(const DevicePatch& patch, const Tiling& tiling, size_t number) {
  const Tile tile = tiling[number];
  if (patch.regions.empty()) return PlacedBlock{patch.data, place_of(tile, tiling.stride())};
  const uint64_t all = patch.layout.columns, row = tile.begin / all, column = tile.begin % all;
  // In order over the end of a row: it has all columns, and wants rows without a gap.
  const bool folded = column + tile.columns > all;
  const uint64_t end_row = row + (folded ? (column + tile.columns + all - 1) / all : tile.rows),
                 first_column = folded ? 0 : column,
                 end_column = folded ? all : column + tile.columns;
  PlacedBlock placed;
  for (const DeviceRegion& region : patch.regions) {
    const uint64_t region_end_row = region.first_row + region.rows,
                   region_end_column = region.first_column + region.columns;
    if (row >= region_end_row || end_row <= region.first_row || first_column >= region_end_column ||
        end_column <= region.first_column) {
      continue;
    }
    const bool inside = row >= region.first_row && end_row <= region_end_row &&
                        first_column >= region.first_column && end_column <= region_end_column &&
                        (!folded || region.row_stride == all);
    if (!inside || placed.data != nullptr) {
      return invalid_argument("tile " + std::to_string(number) + ", rows " + std::to_string(row) +
                              " to " + std::to_string(end_row - 1) + ", columns " +
                              std::to_string(first_column) + " to " +
                              std::to_string(end_column - 1) + ": not inside exactly one region");
    }
    const uint64_t begin =
        (row - region.first_row) * region.row_stride + column - region.first_column;
    placed = {region.data, place_of({begin, tile.rows, tile.columns}, region.row_stride)};
  }
  return placed;
}

// Blocks that are to be written nowhere become blocks without changes.
Status leave_out_blocks(const DevicePatch& patch, Payload* payload) {
  if (patch.regions.empty()) return {};
  DW_RETURN_IF_ERROR(check_regions(patch));
  const Tiling tiling(payload->model.tiles, patch.layout, patch.num_elements);
  for (size_t b = 0; b < payload->blocks.size(); ++b) {
    if (payload->blocks[b].empty()) continue;
    DW_ASSIGN_OR_RETURN(const PlacedBlock placed, place_block(patch, tiling, b));
    if (placed.data == nullptr) payload->blocks[b] = {};
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
      failures[i] = leave_out_blocks(patch, &all.payloads[i]);
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
      const Result<PlacedBlock> placed = place_block(patch, tiling, b);
      block->data = placed->data;
      block->place = placed->place;
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

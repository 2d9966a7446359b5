#include "codec/cuda/tight_tables.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "codec/cuda/workspace.h"
#include "codec/tight_fit.h"
#include "codec/tight_payload.h"
#include "codec/tight_sample.h"
#include "kernels/cuda/tight_encode.h"

namespace deltawire::cuda {
namespace {

using tight::Model;

Result<std::unique_ptr<GapTables>> make_gap_tables(Stream stream) {
  std::vector<TableFrequencies> frequencies(256);
  for (unsigned q = 0; q < 256; ++q) {
    const RansTable& table = tight::gap_table(uint8_t(q));
    if (table.num_symbols > GapTable::kSymbols) return internal_error("a gap table is too large");
    frequencies[q].num_symbols = table.num_symbols;
    for (uint32_t s = 0; s < table.num_symbols; ++s) {
      frequencies[q].frequency[s] = uint16_t(table.decode[s] & 0xffff);
    }
  }
  auto made = std::make_unique<GapTables>();
  const size_t from_bytes = 256 * sizeof(TableFrequencies);
  DW_ASSIGN_OR_RETURN(const Buffer from, Buffer::allocate(Place::kDevice, from_bytes));
  DW_ASSIGN_OR_RETURN(made->decode, Buffer::allocate(Place::kDevice, 256 * sizeof(GapTable)));
  DW_ASSIGN_OR_RETURN(made->encode, Buffer::allocate(Place::kDevice, 256 * sizeof(EncodeTable)));
  DW_RETURN_IF_ERROR(copy(from.data(), frequencies.data(), from_bytes, stream));
  DW_RETURN_IF_ERROR(
      expand_tables(from.data<TableFrequencies>(), made->decode.data<GapTable>(), 256, stream));
  DW_RETURN_IF_ERROR(
      expand_tables(from.data<TableFrequencies>(), made->encode.data<EncodeTable>(), 256, stream));
  DW_RETURN_IF_ERROR(wait(stream));
  return made;
}

}  // namespace

void make_value_tables(const Model& model, uint8_t width, TableFrequencies* out) {
  const auto make = [&](size_t at, const uint8_t* codes, uint32_t count) {
    out[at].num_symbols = count;
    tight::coded_frequencies(codes, count, out[at].frequency);
  };
  for (size_t v = 0; v < model.num_contexts; ++v) {
    make(v, model.value_codes[v], tight::num_value_tokens(width));
  }
  make(model.num_contexts, model.escape_codes, tight::num_escapes(width));
}

TightKeys make_keys(const ClassSplit& split) {
  TightKeys keys{split.key_shift, split.key_mask, split.num_classes, {}, {}};
  std::fill(std::begin(keys.border), std::end(keys.border), uint16_t{256});
  keys.border[0] = 0;
  std::copy_n(split.thresholds, split.num_classes - 1U, keys.border + 1);
  tight::fill_class_of_key(split.thresholds, split.num_classes - 1U, keys.class_of_key);
  return keys;
}

void fill_contexts(const Model& model, uint8_t context_of_key[256]) {
  tight::fill_class_of_key(model.context_thresholds, model.num_contexts - 1U, context_of_key);
}

BlockPlace place_of(const Tile& tile, uint64_t stride) {
  static_assert(kMaxTileColumnsLog2 == BlockPlace::kMaxColumnsLog2);
  if (tile.rows == 1 || tile.columns == stride) return {tile.begin};
  return BlockPlace::of_rows(tile.begin, uint32_t(tile.columns), uint32_t(stride - tile.columns));
}

Result<const GapTables*> gap_tables(Stream stream) {
  static std::mutex mutex;
  // Never freed: the driver may be gone before static objects are.
  static auto& of_devices = *new std::map<int, std::unique_ptr<const GapTables>>();
  DW_ASSIGN_OR_RETURN(const int device, current_device());
  const std::lock_guard lock(mutex);
  std::unique_ptr<const GapTables>& made = of_devices[device];
  if (made == nullptr) {
    DW_ASSIGN_OR_RETURN(made, make_gap_tables(stream));
  }
  return made.get();
}

namespace {

using namespace deltawire::tight;

static_assert(kSamplePiece == kSamplePieceElements);

KeyStats key_stats(const KeyCounts& counts) {
  KeyStats stats;
  for (unsigned key = 0; key < 256; ++key) {
    stats.population[key] = counts.population[key];
    stats.changed[key] = counts.changed[key];
    stats.num_elements += counts.population[key];
  }
  return stats;
}

Model fit(const DevicePair& pair, const KeyStats& keys, const ClassSplit& split,
          const uint32_t* counts) {
  const uint64_t n = pair.num_elements;
  const uint32_t num_tokens = num_value_tokens(pair.layout.width);
  uint8_t class_of_key[256];
  fill_class_of_key(split.thresholds, split.num_classes - 1U, class_of_key);
  ClassStats classes;
  const auto values = std::make_unique<ValueStats>();
  uint64_t total = 0;
  for (unsigned key = 0; key < 256; ++key) {
    const uint64_t population = counts[key], changed = counts[256 + key];
    classes.population[class_of_key[key]] += population;
    classes.changed[class_of_key[key]] += changed;
    classes.num_elements += population;
    total += changed;
    std::copy_n(counts + 512 + key * num_tokens, num_tokens, values->tokens[key]);
  }
  std::copy_n(counts + 512 + 256 * num_tokens, num_escapes(pair.layout.width), values->escapes);
  return total == 0 ? fit_law(keys, pair.layout, n)
                    : fit_model(split, classes, *values, pair.layout, n);
}

}  // namespace

Result<std::vector<Model>> fit_models(std::span<const DevicePair> pairs,
                                      const DeviceOptions& options, Stream stream,
                                      const std::function<Status()>& meanwhile) {
  const size_t num = pairs.size();
  const uint8_t width = pairs[0].layout.width;
  std::vector<SampleArray> arrays;
  std::vector<SampleBlock> blocks;
  for (size_t i = 0; i < num; ++i) {
    const DevicePair& pair = pairs[i];
    const SampledPieces pieces = sampled_pieces(pair.num_elements);
    arrays.push_back({pair.old_data, pair.new_data, pair.num_elements, pieces.all, pieces.taken,
                      pair.layout.key_shift, pair.layout.key_mask});
    const Tiling tiling = tiling_of(pair);
    for (const size_t block : sampled_blocks(tiling.size(), tiling.tiled())) {
      const Tile tile = tiling[block];
      blocks.push_back({uint32_t(i), uint32_t(tile.size()), place_of(tile, tiling.stride())});
    }
  }
  const size_t array_bytes = num * sizeof(SampleArray), key_bytes = num * sizeof(KeyCounts);
  const size_t block_bytes = blocks.size() * sizeof(SampleBlock);
  const size_t num_counts = num_value_counts(width);
  const size_t value_bytes = num * num_counts * sizeof(uint32_t);
  const size_t count_bytes = key_bytes + value_bytes;
  Workspace& workspace = *options.workspace;
  DW_ASSIGN_OR_RETURN(uint8_t* const tables,
                      workspace.get(Workspace::kModels, array_bytes + block_bytes));
  DW_ASSIGN_OR_RETURN(uint8_t* const counted, workspace.get(Workspace::kCounts, count_bytes));
  DW_ASSIGN_OR_RETURN(uint8_t* const host, workspace.get(Workspace::kHostCounts, count_bytes));
  const auto* device_arrays = reinterpret_cast<SampleArray*>(tables);
  const auto* device_blocks = reinterpret_cast<SampleBlock*>(tables + array_bytes);
  auto* keys = reinterpret_cast<KeyCounts*>(counted);
  auto* values = reinterpret_cast<uint32_t*>(counted + key_bytes);
  DW_RETURN_IF_ERROR(copy(tables, arrays.data(), array_bytes, stream));
  DW_RETURN_IF_ERROR(copy(tables + array_bytes, blocks.data(), block_bytes, stream));
  DW_RETURN_IF_ERROR(fill_zero(counted, count_bytes, stream));
  // Values are counted by key, not by class: nothing has to wait for the borders between classes.
  DW_RETURN_IF_ERROR(sample_keys(device_arrays, uint32_t(num), width, pairs[0].kind, keys, stream));
  DW_RETURN_IF_ERROR(sample_values(device_arrays, device_blocks, uint32_t(blocks.size()), width,
                                   pairs[0].kind, values, stream));
  DW_RETURN_IF_ERROR(copy(host, counted, count_bytes, stream));
  DW_RETURN_IF_ERROR(meanwhile());
  DW_RETURN_IF_ERROR(wait(stream));

  std::vector<Model> models(num);
  const auto* host_keys = reinterpret_cast<const KeyCounts*>(host);
  const auto* host_values = reinterpret_cast<const uint32_t*>(host + key_bytes);
  parallel_for(options.pool, num, [&](size_t i, unsigned) {
    const KeyStats stats = key_stats(host_keys[i]);
    const ClassSplit split = fit_split(stats, pairs[i].layout, pairs[i].num_elements);
    models[i] = fit(pairs[i], stats, split, host_values + i * num_counts);
    models[i].tiles = choose_tiles(pairs[i].layout, pairs[i].num_elements);
  });
  return models;
}

}  // namespace deltawire::cuda

#include "codec/cuda/tight_models.h"

#include <algorithm>
#include <memory>

#include "codec/cuda/workspace.h"
#include "codec/tight_fit.h"
#include "codec/tight_payload.h"
#include "codec/tight_sample.h"
#include "kernels/cuda/tight_encode.h"

namespace deltawire::cuda {
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
    for (const size_t block : sampled_blocks(pair.num_elements)) {
      const uint64_t first = uint64_t{block} << kBlockLog2;
      blocks.push_back(
          {uint32_t(i), first,
           uint32_t(std::min<uint64_t>(uint64_t{1} << kBlockLog2, pair.num_elements - first))});
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
  });
  return models;
}

}  // namespace deltawire::cuda

// The code tables of `tight` as devices want them.
#pragma once

#include <functional>
#include <vector>

#include "codec/cuda/device_codec.h"
#include "codec/tight_model.h"
#include "kernels/cuda/tight_decode.h"
#include "kernels/cuda/tight_encode.h"

namespace deltawire::cuda {

// How many value tables a model has: one for each context, then the escapes.
inline size_t num_value_tables(const tight::Model& model) { return model.num_contexts + 1U; }
// Writes that many.
void make_value_tables(const tight::Model& model, uint8_t width, TableFrequencies* out);

TightKeys make_keys(const ClassSplit& split);
void fill_contexts(const tight::Model& model, uint8_t context_of_key[256]);

// Where a tile is in its array, whose rows are `stride` elements apart.
BlockPlace place_of(const Tile& tile, uint64_t stride);

// All 256 tables of gaps, of the device in use; made once for each. Any thread may ask.
struct GapTables {
  Buffer decode, encode;
};
Result<const GapTables*> gap_tables(Stream stream);

// Models for arrays on a device, fitted to the same samples that the CPU's encoder takes.

// Of arrays of one width and kind, none of them empty. `meanwhile` is called while the device
// counts.
Result<std::vector<tight::Model>> fit_models(std::span<const DevicePair> pairs,
                                             const DeviceOptions& options, Stream stream,
                                             const std::function<Status()>& meanwhile);

// Arrays of a single block are small, and a model of their own may cost more than it saves: which
// of two is better has to be tried. They are fetched and left to the CPU's encoder.
Result<std::vector<DeviceEncoded>> encode_on_host(std::span<const DevicePair> pairs,
                                                  const DeviceOptions& options, Stream stream);

}  // namespace deltawire::cuda

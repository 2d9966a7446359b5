// The code tables of `tight` as devices want them.
#pragma once

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

// All 256 tables of gaps, of the device in use; made once for each. Any thread may ask.
struct GapTables {
  Buffer decode, encode;
};
Result<const GapTables*> gap_tables(Stream stream);

}  // namespace deltawire::cuda

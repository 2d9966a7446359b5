// A look at an array before it is split: which keys it has, and at which of them it changes.
#pragma once

#include <vector>

#include "codec/codec.h"
#include "codec/tight_fit.h"

namespace deltawire::tight {

// Which parts of an array of n elements are looked at, so that every encoder takes the same ones.
inline constexpr size_t kSamplePieceElements = 2048;
struct SampledPieces {
  size_t all, taken;
  size_t start(size_t i) const { return (i * all / taken) * kSamplePieceElements; }
};
SampledPieces sampled_pieces(size_t n);
// Blocks of `all` that tables are fitted to: of tiles, not all of the same columns.
std::vector<size_t> sampled_blocks(size_t all, bool tiled);

// Reads a few evenly spaced pieces; the cost is a few per cent of encoding the array.
// `copy`: of copies of those, for arrays that others may write to.
KeyStats sample_keys(Layout layout, Bytes old_bytes, Bytes new_bytes, bool copy = false);

}  // namespace deltawire::tight

// Where two batches of arrays differ: one read of each, one pass, the changes compacted.
#pragma once

#include <cstdint>

#include "kernels/cuda/batch.h"

namespace deltawire::cuda {

// What the new arrays hold. Wider floats are compared as the bf16 they round to, to nearest even,
// as they are read: no rounded copy exists. A NaN becomes 0x7fc0. kMarkedFp8: see marked.h.
enum class NewKind : uint8_t { kSame, kF32AsBf16, kF16AsBf16, kMarkedFp8 };

// The changes of a tile: `count` of them from `first` on. A tile that found no more room has a
// first of kNoRoom and a count that is right.
struct TileChanges {
  uint64_t first;
  uint32_t count;
};
inline constexpr uint64_t kNoRoom = ~uint64_t{0};

// On the device. Tiles come in any order, changes of a tile in ascending order.
struct DiffOutput {
  TileChanges* tiles;   // one for each of the batch
  uint16_t* positions;  // within their tile
  void* values;         // new ones, of the batch's width
  uint64_t capacity;    // of both lists
  uint64_t* total;      // changes found, whether there was room or not; zero before
  // Unless null: both lanes of sum128 of each new array are added to these, as they are read.
  uint64_t* sums = nullptr;
};

// Looks at tiles [first_tile, first_tile + num_tiles).
Status diff(const PairBatch& batch, NewKind kind, uint64_t first_tile, uint64_t num_tiles,
            const DiffOutput& out, Stream stream);

}  // namespace deltawire::cuda

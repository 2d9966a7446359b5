// `gaps` on the device: from the changes that diff() found to the bytes of a payload,
// and from such bytes onto weights. The bytes are those that the CPU writes. With old values too,
// lists are what the host makes payloads of `adaptive` of.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/diff.h"

namespace deltawire::cuda {

// ---- writing

// Of an array, from all of its tiles.
struct ArrayChanges {
  uint64_t count;
  uint64_t largest_gap;  // unchanged elements between two changes, or before the first
};
// Of a tile, what came before it in its array.
struct TilePlace {
  uint64_t first_change;  // its number
  uint64_t resume;        // the element after the last change
};

// Both on the device, for all tiles and arrays of the batch. Worth nothing if a tile lacked room.
Status place_changes(const PairBatch& batch, const DiffOutput& changes, TilePlace* tiles,
                     ArrayChanges* arrays, Stream stream);

// Where an array's lists go.
struct ListPlace {
  uint8_t* gaps;
  uint8_t* values;
  uint8_t* old_values;  // of the same elements, read from the old array; null: not wanted
  uint32_t gap_bytes;   // 2, 4 or 8
};
// `places` is on the device, one for each array.
Status write_lists(const PairBatch& batch, const DiffOutput& changes, const TilePlace* tiles,
                   const ListPlace* places, Stream stream);

// Where the lists of an exchange go, as exchange.h wants them: offsets in the array and values.
struct OffsetPlace {
  uint32_t* offsets;
  void* values;
};
// The same in these; arrays have at most 2^32 elements.
Status write_offsets(const PairBatch& batch, const DiffOutput& changes, const TilePlace* tiles,
                     const OffsetPlace* places, Stream stream);

// ---- reading

// One array to patch. All pointers are to device memory and need no alignment.
struct ListPatch {
  void* data;
  uint64_t num_elements;
  const uint8_t* gaps;
  const uint8_t* values;
  uint64_t count;
  uint32_t gap_bytes;
  uint64_t first_chunk;  // filled in by check_lists()
};

// What a kernel found wrong. Kernels that write weights do nothing once a code is set.
struct PatchStatus {
  uint32_t code;   // 0: nothing wrong; else PatchError
  uint32_t array;  // in the batch
  uint64_t where;  // a change, or a block
};
enum class PatchError : uint32_t {
  kNone = 0,
  kPositionOutside = 1,
  kBadState,
  kGapsRunOver,
  kRankNotReached,
  kValuesRunOver,
  kStreamsDoNotMeet,
  kKeysDoNotFit,
  kWeightsChanged,
};
const char* describe(PatchError error) noexcept;

// Memory that the two below need for their own.
size_t apply_lists_scratch(std::span<const ListPatch> patches) noexcept;
// Checks every position of every patch. `status` is on the device and zero before. Fills in
// first_chunk.
Status check_lists(std::span<ListPatch> patches, void* scratch, PatchStatus* status, Stream stream);
// After it, with the same scratch: writes all, or nothing if the status says that something is
// wrong. `width` is of all arrays.
Status scatter_lists(std::span<const ListPatch> patches, unsigned width, void* scratch,
                     PatchStatus* status, Stream stream);

}  // namespace deltawire::cuda

// `indices` and `gaps` onto tensors that lie in an engine's memory in another way than in a
// checkpoint: in slices of fused tensors, in shards, transposed.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/lists.h"

namespace deltawire::cuda {

inline constexpr unsigned kMaxMappedDims = 8;

// A box of a tensor and where its elements lie: that at (i, j, ...) from its offset is at
// data[i * strides[0] + j * strides[1] + ...].
struct MappedPiece {
  void* data;
  uint64_t offset[kMaxMappedDims], extent[kMaxMappedDims];
  int64_t strides[kMaxMappedDims];  // in elements
};

// A list for one tensor. Positions count the tensor's elements row by row; what lies in none of its
// pieces is left out.
struct MappedList {
  ListPatch list;  // its data is not used
  uint64_t shape[kMaxMappedDims];
  uint32_t num_dims;  // at least 1
  uint32_t num_pieces;
  uint64_t first_piece;  // in the table of pieces
};

// The memory that scatter_mapped() needs for its own.
size_t mapped_scratch(std::span<const MappedList> lists, size_t num_pieces) noexcept;
// Writes all, or nothing if the status says that something is wrong: check_lists() comes before,
// with the same lists. `width` is of all tensors.
Status scatter_mapped(std::span<const MappedList> lists, std::span<const MappedPiece> pieces,
                      unsigned width, void* scratch, const PatchStatus* status, Stream stream);

}  // namespace deltawire::cuda

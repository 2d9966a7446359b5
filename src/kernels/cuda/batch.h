// Many arrays of one element width as one launch: each array is cut into tiles, and a table says
// which array a tile is of. Small arrays cost a tile, not a launch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/memory.h"

namespace deltawire::cuda {

inline constexpr uint32_t kTileBytes = 65536;
constexpr uint32_t tile_elements(unsigned width) { return kTileBytes / width; }

// What is on the device for each array.
struct PairArray {
  const void* old_data;
  const void* new_data;
  uint64_t num_elements;
  uint64_t first_tile;  // of this array, in the batch
};

// A table of arrays on the device. Arrays may lie anywhere, at any alignment.
class PairBatch {
 public:
  // `arrays` need no first_tile.
  static Result<PairBatch> make(std::vector<PairArray> arrays, unsigned width, Stream stream);
  // The same in memory of the caller's on the device, so many bytes, aligned to 256. To allocate
  // some makes every stream wait.
  static size_t size_bytes(std::span<const PairArray> arrays, unsigned width) noexcept;
  static Result<PairBatch> make_in(uint8_t* memory, std::vector<PairArray> arrays, unsigned width,
                                   Stream stream);

  unsigned width() const noexcept { return width_; }
  uint64_t num_tiles() const noexcept { return num_tiles_; }
  const std::vector<PairArray>& arrays() const noexcept { return arrays_; }
  const PairArray* device_arrays() const noexcept { return table_; }
  const uint32_t* tile_owners() const noexcept { return owners_; }

 private:
  unsigned width_ = 0;
  uint64_t num_tiles_ = 0;
  std::vector<PairArray> arrays_;
  Buffer own_;
  PairArray* table_ = nullptr;
  uint32_t* owners_ = nullptr;
};

}  // namespace deltawire::cuda

#include "kernels/cuda/batch.h"

#include "kernels/cuda/check.cuh"

namespace deltawire::cuda {
namespace {

__global__ void fill_owners(const PairArray* arrays, uint32_t num_arrays, uint64_t num_tiles,
                            uint32_t* owners) {
  const uint32_t array = blockIdx.x;
  const uint64_t end = array + 1 < num_arrays ? arrays[array + 1].first_tile : num_tiles;
  for (uint64_t tile = arrays[array].first_tile + threadIdx.x; tile < end; tile += blockDim.x) {
    owners[tile] = array;
  }
}

uint64_t num_tiles_of(const PairArray& array, unsigned width) {
  return (array.num_elements + tile_elements(width) - 1) / tile_elements(width);
}

size_t table_bytes(size_t num_arrays) { return (num_arrays * sizeof(PairArray) + 255) / 256 * 256; }

}  // namespace

size_t PairBatch::size_bytes(std::span<const PairArray> arrays, unsigned width) noexcept {
  uint64_t tiles = 0;
  for (const PairArray& array : arrays) tiles += num_tiles_of(array, width);
  return table_bytes(arrays.size()) + tiles * sizeof(uint32_t);
}

Result<PairBatch> PairBatch::make(std::vector<PairArray> arrays, unsigned width, Stream stream) {
  DW_ASSIGN_OR_RETURN(Buffer own, Buffer::allocate(Place::kDevice, size_bytes(arrays, width)));
  DW_ASSIGN_OR_RETURN(PairBatch batch, make_in(own.data(), std::move(arrays), width, stream));
  batch.own_ = std::move(own);
  return std::move(batch);
}

Result<PairBatch> PairBatch::make_in(uint8_t* memory, std::vector<PairArray> arrays, unsigned width,
                                     Stream stream) {
  PairBatch batch;
  batch.width_ = width;
  for (PairArray& array : arrays) {
    array.first_tile = batch.num_tiles_;
    batch.num_tiles_ += num_tiles_of(array, width);
  }
  if (batch.num_tiles_ >= uint64_t{1} << 31) {
    return unsupported("a batch of over 2^31 tiles: publish fewer tensors at a time");
  }
  batch.arrays_ = std::move(arrays);
  if (batch.num_tiles_ == 0) return std::move(batch);
  const size_t num_arrays = batch.arrays_.size();
  batch.table_ = reinterpret_cast<PairArray*>(memory);
  batch.owners_ = reinterpret_cast<uint32_t*>(memory + table_bytes(num_arrays));
  DW_RETURN_IF_ERROR(
      copy(batch.table_, batch.arrays_.data(), num_arrays * sizeof(PairArray), stream));
  fill_owners<<<unsigned(num_arrays), 128, 0, stream>>>(batch.table_, uint32_t(num_arrays),
                                                        batch.num_tiles_, batch.owners_);
  DW_RETURN_IF_ERROR(launched("fill_owners"));
  return std::move(batch);
}

}  // namespace deltawire::cuda

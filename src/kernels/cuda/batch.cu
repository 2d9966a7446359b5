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

}  // namespace

Result<PairBatch> PairBatch::make(std::vector<PairArray> arrays, unsigned width, Stream stream) {
  PairBatch batch;
  batch.width_ = width;
  for (PairArray& array : arrays) {
    array.first_tile = batch.num_tiles_;
    batch.num_tiles_ += (array.num_elements + tile_elements(width) - 1) / tile_elements(width);
  }
  if (batch.num_tiles_ >= uint64_t{1} << 31) {
    return unsupported("a batch of over 2^31 tiles: publish fewer tensors at a time");
  }
  batch.arrays_ = std::move(arrays);
  if (batch.num_tiles_ == 0) return std::move(batch);
  DW_ASSIGN_OR_RETURN(batch.table_,
                      Buffer::allocate(Place::kDevice, batch.arrays_.size() * sizeof(PairArray)));
  DW_ASSIGN_OR_RETURN(batch.owners_,
                      Buffer::allocate(Place::kDevice, batch.num_tiles_ * sizeof(uint32_t)));
  DW_RETURN_IF_ERROR(copy(batch.table_.data(), batch.arrays_.data(), batch.table_.size(), stream));
  fill_owners<<<unsigned(batch.arrays_.size()), 128, 0, stream>>>(
      batch.device_arrays(), uint32_t(batch.arrays_.size()), batch.num_tiles_,
      batch.owners_.data<uint32_t>());
  DW_RETURN_IF_ERROR(launched("fill_owners"));
  return std::move(batch);
}

}  // namespace deltawire::cuda

// Bits that the lanes of a warp put or take together, in lane order.
#pragma once

#include "kernels/cuda/elements.cuh"

namespace deltawire::cuda {

// Sum over this lane and those before it.
__device__ inline uint32_t sum_through(uint32_t value) {
#pragma unroll
  for (unsigned d = 1; d < kWarp; d *= 2) {
    const uint32_t left = __shfl_up_sync(kAllLanes, value, d);
    value += lane_id() >= d ? left : 0;
  }
  return value;
}
__device__ inline uint32_t last_lane(uint32_t value) {
  return __shfl_sync(kAllLanes, value, kWarp - 1);
}

// In shared memory, one for each warp: what 32 lanes may put at once, and what was left over.
struct BitTile {
  uint32_t words[2 * kWarp + 2];
};

// Writes to memory that begins at a multiple of four bytes. The same in all lanes.
class WarpBitWriter {
 public:
  __device__ WarpBitWriter(uint8_t* begin, BitTile* tile)
      : out_(reinterpret_cast<uint32_t*>(begin)), tile_(tile) {}

  // Every lane puts `count` bits, up to 64, of a value below 2^count.
  __device__ void put(uint64_t value, unsigned count) {
    const unsigned lane = lane_id();
    const uint32_t through = sum_through(count), total = last_lane(through);
    for (unsigned w = lane; w < (used_ + total) / 32 + 1; w += kWarp) {
      tile_->words[w] = w == 0 ? pending_ : 0;
    }
    __syncwarp();
    if (count != 0) {
      const uint32_t at = used_ + through - count;
      const unsigned shift = at % 32;
      uint32_t* const word = &tile_->words[at / 32];
      atomicOr(word, uint32_t(value << shift));
      const uint64_t rest = shift == 0 ? value >> 32 : value >> (32 - shift);
      if (uint32_t(rest) != 0) atomicOr(word + 1, uint32_t(rest));
      if (rest >> 32 != 0) atomicOr(word + 2, uint32_t(rest >> 32));
    }
    __syncwarp();
    const unsigned whole = (used_ + total) / 32;
    for (unsigned w = lane; w < whole; w += kWarp) out_[w] = tile_->words[w];
    pending_ = tile_->words[whole];
    __syncwarp();
    out_ += whole;
    used_ = (used_ + total) % 32;
  }

  // Pads with zero bits to a whole byte; returns the byte after it.
  __device__ uint8_t* finish() {
    const unsigned bytes = (used_ + 7) / 8;
    uint8_t* const at = reinterpret_cast<uint8_t*>(out_);
    if (lane_id() < bytes) at[lane_id()] = uint8_t(pending_ >> (8 * lane_id()));
    return at + bytes;
  }
  __device__ const uint8_t* at() const { return reinterpret_cast<const uint8_t*>(out_); }

 private:
  uint32_t* out_;
  BitTile* tile_;
  uint32_t pending_ = 0;
  unsigned used_ = 0;  // bits of `pending_`, under 32
};

}  // namespace deltawire::cuda

// A step of a warp's elements in shared memory, fetched while the step before is worked on. Memory
// is read in whole lines; each lane then finds its own row of neighbours, and any lane any element,
// without a second trip.
#pragma once

#include <cuda_pipeline.h>

#include "kernels/cuda/elements.cuh"

namespace deltawire::cuda {

// kLane elements of kBytes bytes for each of 32 lanes.
template <unsigned kBytes, unsigned kLane>
struct StagedRows {
  static constexpr unsigned kChunks = kLane * kBytes / 16;  // of sixteen bytes, to a row
  static_assert(kChunks > 0 && (kChunks & (kChunks - 1)) == 0);
  uint4 chunks[kWarp * kChunks];

  // Rows are shuffled inside, so that the same chunk of neighbouring rows lies in other banks.
  static __device__ unsigned place(unsigned row, unsigned chunk) {
    const unsigned turn = kChunks >= 8 ? row & 7 : row * kChunks / 8 & (kChunks - 1);
    return row * kChunks + (chunk ^ turn);
  }

  // Begins to fetch elements [first, first + 32 kLane) of an array that ends at `end`; all of them
  // are there and aligned if `whole`. To be followed by commit_fetch().
  __device__ void fetch(const void* data, uint64_t first, uint64_t end, bool whole) {
    const uint8_t* const from = static_cast<const uint8_t*>(data) + first * kBytes;
    if (whole) {
#pragma unroll
      for (unsigned i = 0; i < kChunks; ++i) {
        const unsigned q = i * kWarp + lane_id();
        __pipeline_memcpy_async(&chunks[place(q / kChunks, q % kChunks)],
                                reinterpret_cast<const uint4*>(from) + q, 16);
      }
      return;
    }
    for (unsigned i = lane_id(); i < kWarp * kLane && first + i < end; i += kWarp) {
      for (unsigned b = 0; b < kBytes; ++b) bytes_of(i)[b] = from[i * kBytes + b];
    }
  }

  __device__ const uint4& chunk(unsigned row, unsigned i) const { return chunks[place(row, i)]; }

  template <class T>
  __device__ T element(unsigned i) const {
    static_assert(sizeof(T) == kBytes);
    return *reinterpret_cast<const T*>(const_cast<StagedRows*>(this)->bytes_of(i));
  }

 private:
  __device__ uint8_t* bytes_of(unsigned i) {
    const unsigned byte = i % kLane * kBytes;
    return reinterpret_cast<uint8_t*>(&chunks[place(i / kLane, byte / 16)]) + byte % 16;
  }
};

__device__ inline void commit_fetch() { __pipeline_commit(); }
// All fetches but the last `under_way` are there for the whole warp.
template <unsigned kUnderWay>
__device__ void await_fetch() {
  __pipeline_wait_prior(kUnderWay);
  __syncwarp();
}

}  // namespace deltawire::cuda

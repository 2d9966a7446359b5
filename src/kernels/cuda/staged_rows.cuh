// A step of a thread block's elements in shared memory. Memory is read in whole lines; each thread
// then finds its own row of neighbours, and any thread any element, without a second trip.
#pragma once

#include <cuda_pipeline.h>

#include <utility>

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/tight.h"

namespace deltawire::cuda {

// Whether sixteen bytes of a block's elements are always side by side, and aligned.
template <class T>
__device__ bool has_chunks(const void* data, const BlockPlace& place) {
  return is_aligned16(data) && place.piece_bytes<T>() >= 16;
}

// Calls body(at), where at(i) is the address of sixteen bytes, number i * kThreads + threadIdx.x of
// the elements from `first` on. For whole tiles that is nearly as cheap as for blocks in order.
template <class T, unsigned kThreads, class Body>
__device__ void with_chunks(const void* data, const BlockPlace& place, uint32_t first,
                            const Body& body) {
  constexpr uint32_t kPer = 16 / sizeof(T), kRound = kThreads * kPer;
  const T* const elements = static_cast<const T*>(data);
  const uint32_t own = first + threadIdx.x * kPer;
  if (const uint64_t hop = place.hop(kRound); hop != 0) {
    const T* const from = elements + place(own);
    body([&](uint32_t i) { return reinterpret_cast<const uint4*>(from + i * hop); });
  } else {
    body([&](uint32_t i) {
      return reinterpret_cast<const uint4*>(elements + place(own + i * kRound));
    });
  }
}

// A row of kLane elements for each of kThreads threads.
template <class Element, unsigned kLane, unsigned kThreads>
struct StagedRows {
  static constexpr unsigned kLaneElements = kLane;
  static constexpr unsigned kRowBytes = kLane * sizeof(Element);
  static constexpr unsigned kChunks = kRowBytes / 16;  // of sixteen bytes, to a row
  static_assert(kChunks > 0 && (kChunks & (kChunks - 1)) == 0 && kRowBytes <= 128);
  static_assert(kThreads % 32 == 0);
  uint4 chunks[kThreads * kChunks];

  // Begins to fetch elements [first, first + count) of a block; all of a step are there and
  // aligned if `whole`. To be followed by await_fetch() and a barrier.
  __device__ void fetch(const void* data, const BlockPlace& place, uint32_t first, uint32_t count,
                        bool whole) {
    if (whole) {
      uint8_t* const to = bytes() + shuffled(threadIdx.x * 16);
      with_chunks<Element, kThreads>(data, place, first, [&](const auto& at) {
#pragma unroll
        for (unsigned i = 0; i < kChunks; ++i) {  // whole lines apart: all are shuffled alike
          __pipeline_memcpy_async(to + i * kThreads * 16, at(i), 16);
        }
      });
      __pipeline_commit();
      return;
    }
    for (uint32_t i = threadIdx.x; i < count; i += kThreads) {
      *reinterpret_cast<Element*>(bytes() + shuffled(i * sizeof(Element))) =
          load_element<Element>(data, place(first + i));
    }
  }

  __device__ const uint4& chunk(unsigned row, unsigned i) const {
    const unsigned turn = row * kRowBytes / 128 & (kChunks - 1);
    return chunks[row * kChunks + (i ^ turn)];
  }
  __device__ uint4& chunk(unsigned row, unsigned i) {
    return const_cast<uint4&>(std::as_const(*this).chunk(row, i));
  }
  __device__ Element element(unsigned i) const {
    return *reinterpret_cast<const Element*>(bytes() + shuffled(i * sizeof(Element)));
  }
  __device__ void set(unsigned i, Element value) {
    *reinterpret_cast<Element*>(bytes() + shuffled(i * sizeof(Element))) = value;
  }

 private:
  // Chunks change places inside their row, so that the same chunk of neighbouring rows lies in
  // other banks.
  static __device__ unsigned shuffled(unsigned byte) {
    return byte ^ (byte >> 3 & (kChunks - 1) << 4);
  }
  __device__ uint8_t* bytes() { return reinterpret_cast<uint8_t*>(chunks); }
  __device__ const uint8_t* bytes() const { return reinterpret_cast<const uint8_t*>(chunks); }
};

// What this thread has begun to fetch is there.
__device__ inline void await_fetch() { __pipeline_wait_prior(0); }

}  // namespace deltawire::cuda

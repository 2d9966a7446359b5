// How few bytes the changes could take: what every codec is measured against.
#pragma once

#include <span>

#include "base/thread_pool.h"
#include "lab/bench/data.h"

namespace deltawire::cli {

// Empirical entropies in bytes, one model per tensor, the model itself for free. An adaptive codec
// may come in below: the bound knows one probability per key and tensor.
struct Bound {
  double positions = 0;        // which elements changed, given the old key (the exponent) of each
  double values = 0;           // new - old of those that did, given the old key
  double plain_positions = 0;  // which elements changed, knowing only how many

  double conditioned() const noexcept { return positions + values; }
  double unconditioned() const noexcept { return plain_positions + values; }
};

Bound tensor_bound(const BenchTensor& tensor);
// The sum over tensors; the same on any number of threads.
Bound bound_of(std::span<const BenchTensor> tensors, ThreadPool* pool);

}  // namespace deltawire::cli

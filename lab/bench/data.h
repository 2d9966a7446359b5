// The data of a benchmark: tensors before and after a step, in memory.
#pragma once

#include <sys/mman.h>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "codec/codec.h"
#include "deltawire/tensor.h"
#include "lab/bench/cases.h"

namespace deltawire::cli {

struct Unmap {
  uint64_t size = 0;
  void operator()(uint8_t* data) const noexcept { munmap(data, size); }
};
// Anonymous memory that asks for huge pages, so that neither a file's page cache nor the allocator
// is part of what is measured.
using Arena = std::unique_ptr<uint8_t[], Unmap>;

struct BenchTensor {
  std::string name;
  DType dtype = DType::kBF16;
  Layout layout;
  Bytes before, after;
  MutableBytes work;  // what apply patches
};

struct BenchData {
  std::string source;  // "simulated, seed 1" or the paths
  std::vector<BenchTensor> tensors;
  uint64_t weights_bytes = 0;  // of all tensors, once
  uint64_t num_elements = 0;   // as codecs see them
  uint64_t num_changed = 0;    // elements
  uint64_t num_skipped = 0;    // tensors of a checkpoint without a counterpart of the same form
  Arena before, after, work;

  double density() const noexcept {
    return num_elements == 0 ? 0 : double(num_changed) / double(num_elements);
  }
};

// The checkpoints that the options name: every tensor that both have in the same form. Without
// them a model and its first step, simulated.
Result<BenchData> make_bench_data(const Context& context, const BenchOptions& options,
                                  ThreadPool* pool);
// Its source, sizes and changes.
void say_data(const Context& context, const BenchData& data);

// Brings `work` back to the state before.
void reset_work(const BenchData& data, ThreadPool* pool);
// Internal, naming the first tensor and element, unless `work` is now the state after.
Status check_work(const BenchData& data, const std::string& who, ThreadPool* pool);

// The lower bound of bytes for the changes, to which codecs are compared.

// Empirical entropies in bytes, one model per tensor, the model itself for free. An adaptive codec
// may come in below: the bound knows one probability per key and tensor.
struct Bound {
  double positions = 0;  // which elements changed, given the old key (the exponent) of each
  double values = 0;     // new - old of those that did, given the old key

  double conditioned() const noexcept { return positions + values; }
};

Bound tensor_bound(const BenchTensor& tensor);
// The sum over tensors; the same on any number of threads.
Bound bound_of(std::span<const BenchTensor> tensors, ThreadPool* pool);

}  // namespace deltawire::cli

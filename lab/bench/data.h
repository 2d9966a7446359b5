// What a bench works on: tensors before and after a step, in memory of their own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "codec/codec.h"
#include "deltawire/delta.h"
#include "deltawire/tensor.h"

namespace deltawire::cli {

// Anonymous memory that asks for huge pages, so that neither a file's page cache nor the allocator
// is part of what is measured.
class Arena {
 public:
  Arena() = default;
  static Result<Arena> create(uint64_t size_bytes);
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;

  uint8_t* data() const noexcept { return data_; }

 private:
  uint8_t* data_ = nullptr;
  uint64_t size_ = 0;
};

// How often to measure: at least `repeat` times, and small data until `min_seconds` have passed.
struct Effort {
  unsigned repeat = 1;
  double min_seconds = 0;
};

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
  uint64_t weights_bytes = 0;    // of all tensors, once
  uint64_t num_elements = 0;     // as codecs see them
  uint64_t num_changed = 0;      // elements
  uint64_t num_skipped = 0;      // tensors of a checkpoint without a counterpart of the same form
  uint64_t huge_page_bytes = 0;  // of the process, once all is filled
  Arena before, after, work;

  double density() const noexcept {
    return num_elements == 0 ? 0 : double(num_changed) / double(num_elements);
  }
};

// A model and its first step, made by the simulation.
Result<BenchData> simulate_bench_data(uint64_t params, double density, uint64_t seed,
                                      ThreadPool* pool, const Progress& progress);
// Copies every tensor that both checkpoints have in the same form.
Result<BenchData> load_bench_data(const std::string& old_path, const std::string& new_path,
                                  ThreadPool* pool, const Progress& progress);

// Brings `work` back to the state before.
void reset_work(const BenchData& data, ThreadPool* pool);
// Internal, naming the first tensor and element, unless `work` is now the state after.
Status check_work(const BenchData& data, const std::string& who, ThreadPool* pool);

}  // namespace deltawire::cli

// Many tensors of very different sizes on a few threads: tensors are taken in waves, small enough
// to bound what is held in memory, large enough to keep every thread busy.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "base/thread_pool.h"
#include "codec/guard.h"
#include "deltawire/delta.h"
#include "deltawire/status.h"

namespace deltawire {

class Waves {
 public:
  // sizes[i]: bytes of item i, the measure of its work.
  Waves(std::vector<uint64_t> sizes, ThreadPool* pool, Progress progress)
      : sizes_(std::move(sizes)),
        pool_(pool),
        progress_(std::move(progress)),
        total_(std::accumulate(sizes_.begin(), sizes_.end(), uint64_t{0})) {}

  // Calls work(item, inner) for each item, inner being the pool to use inside of it or null, in
  // parallel; after each wave calls finish(item) in order, from the calling thread. Deterministic
  // in its failures: the one of the lowest item is returned.
  Status run(const std::function<Status(size_t item, ThreadPool* inner)>& work,
             const std::function<Status(size_t item)>& finish) {
    const uint64_t wave_bytes = kBytesPerWorker * num_workers(pool_);
    uint64_t done = 0;
    for (size_t begin = 0; begin < sizes_.size();) {
      size_t end = begin;
      uint64_t bytes = 0;
      while (end < sizes_.size() && (end == begin || bytes + sizes_[end] <= wave_bytes)) {
        bytes += sizes_[end++];
      }
      DW_RETURN_IF_ERROR(run_wave(begin, end, work));
      for (size_t item = begin; item < end; ++item) DW_RETURN_IF_ERROR(finish(item));
      done += bytes;
      begin = end;
      if (progress_ && !progress_(done, total_)) return cancelled("stopped on request");
    }
    return {};
  }

 private:
  static constexpr uint64_t kBytesPerWorker = uint64_t{64} << 20;

  Status run_wave(size_t begin, size_t end,
                  const std::function<Status(size_t, ThreadPool*)>& work) {
    if (end - begin == 1) return work(begin, pool_);
    // Largest first, so that no thread starts a long one when the others are done.
    std::vector<size_t> order(end - begin);
    std::iota(order.begin(), order.end(), begin);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return sizes_[a] > sizes_[b]; });
    std::vector<Status> failures(order.size());
    DW_RETURN_IF_ERROR(parallel_try(pool_, order.size(), [&](size_t i, unsigned) -> Status {
      failures[order[i] - begin] = work(order[i], nullptr);
      return {};
    }));
    for (Status& failure : failures) {
      if (!failure.ok()) return std::move(failure);
    }
    return {};
  }

  std::vector<uint64_t> sizes_;
  ThreadPool* pool_;
  Progress progress_;
  uint64_t total_;
};

}  // namespace deltawire

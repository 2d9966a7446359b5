// Many tensors of very different sizes on a few threads: tensors are taken in waves, small enough
// to bound what is held in memory, large enough to keep every thread busy.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "base/guard.h"
#include "base/thread_pool.h"
#include "deltawire/progress.h"
#include "deltawire/status.h"

namespace deltawire {

// The numbers below n, those of the largest sizes first: threads that take them in this order end
// at about the same time.
template <class SizeOf>
std::vector<size_t> largest_first(size_t n, const SizeOf& size_of) {
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return size_of(a) > size_of(b); });
  return order;
}

class Waves {
 public:
  // Whether the work on one item can use several threads.
  enum class Inside { kOneThread, kShared };

  // sizes[i]: bytes of item i, the measure of its work. No wave of several items is larger than
  // `max_wave_bytes`.
  Waves(std::vector<uint64_t> sizes, Inside inside, ThreadPool* pool, Progress progress,
        uint64_t max_wave_bytes = UINT64_MAX)
      : sizes_(std::move(sizes)),
        inside_(inside),
        pool_(pool),
        progress_(std::move(progress)),
        wave_bytes_(std::min(max_wave_bytes, largest(pool))),
        total_(std::accumulate(sizes_.begin(), sizes_.end(), uint64_t{0})) {}

  // Bytes of a wave of several items, at most.
  static uint64_t largest(const ThreadPool* pool) { return kBytesPerWorker * num_workers(pool); }

  // Calls work(item, inner) for each item, inner being the pool to use inside of it or null, in
  // parallel; after each wave calls finish(item), if there is one, in order, from the calling
  // thread. Deterministic in its failures: the one of the lowest item is returned.
  Status run(const std::function<Status(size_t item, ThreadPool* inner)>& work,
             const std::function<Status(size_t item)>& finish = {}) {
    uint64_t done = 0;
    for (size_t begin = 0; begin < sizes_.size();) {
      size_t end = begin;
      uint64_t bytes = 0;
      while (end < sizes_.size() && (end == begin || bytes + sizes_[end] <= wave_bytes_)) {
        bytes += sizes_[end++];
      }
      DW_RETURN_IF_ERROR(run_wave(begin, end, work));
      for (size_t item = begin; finish && item < end; ++item) {
        DW_RETURN_IF_ERROR(finish(item));
      }
      done += bytes;
      begin = end;
      if (progress_ && !progress_(done, total_)) return cancelled("stopped on request");
    }
    return {};
  }

 private:
  static constexpr uint64_t kBytesPerWorker = uint64_t{64} << 20;
  static constexpr uint64_t kWorthSharing = uint64_t{4} << 20;

  // Items too large for one thread get all threads, one after the other. The others are spread over
  // the threads, largest first, so that no thread starts a long item at the end.
  Status run_wave(size_t begin, size_t end,
                  const std::function<Status(size_t, ThreadPool*)>& work) {
    uint64_t bytes = 0;
    for (size_t item = begin; item < end; ++item) bytes += sizes_[item];
    const uint64_t late = 2 * bytes / num_workers(pool_);
    std::vector<Status> outcomes(end - begin);
    std::vector<size_t> small;
    for (size_t item = begin; item < end; ++item) {
      if (inside_ == Inside::kShared && sizes_[item] > kWorthSharing &&
          (sizes_[item] > late || end - begin == 1)) {
        outcomes[item - begin] =
            guard_memory("work on tensors", [&]() -> Status { return work(item, pool_); });
      } else {
        small.push_back(item);
      }
    }
    std::stable_sort(small.begin(), small.end(),
                     [&](size_t a, size_t b) { return sizes_[a] > sizes_[b]; });
    DW_RETURN_IF_ERROR(
        parallel_try("work on tensors", pool_, small.size(), [&](size_t i, unsigned) -> Status {
          outcomes[small[i] - begin] = work(small[i], nullptr);
          return {};
        }));
    for (Status& outcome : outcomes) {
      if (!outcome.ok()) return std::move(outcome);
    }
    return {};
  }

  std::vector<uint64_t> sizes_;
  Inside inside_;
  ThreadPool* pool_;
  Progress progress_;
  uint64_t wave_bytes_;
  uint64_t total_;
};

}  // namespace deltawire

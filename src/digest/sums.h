// Sums of sum128 inside the library: finished, shared by threads, corrected for changed elements.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <span>

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "deltawire/digest.h"

namespace deltawire {

// Both lanes of sum128, with all words of a tensor added, to its digest.
Digest finish_sums(std::array<uint64_t, 2> lanes, uint64_t size_bytes);

// Sums that threads add to side by side.
class SharedSums {
 public:
  void add(Bytes bytes, uint64_t offset) {
    Sums own;
    own.add(bytes, offset);
    add(own);
  }
  void add(const Sums& own) {
    const std::lock_guard lock(mutex_);
    sums_.add(own);
  }
  const Sums& all() const noexcept { return sums_; }  // when nobody adds any more

 private:
  std::mutex mutex_;
  Sums sums_;
};

// What changes of single elements do to the sums of an array.

// `bytes` are those that were added to `sums`, from offset 0, and have not been changed yet.
// Positions count elements of `width` bytes; they ascend and lie inside.
void replace_elements(unsigned width, Bytes bytes, std::span<const uint64_t> positions,
                      Bytes values, ThreadPool* pool, Sums* sums);

}  // namespace deltawire

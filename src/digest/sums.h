// Sums of sum128: their digest, sums shared by threads, and corrections for changed elements.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <span>

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "deltawire/digest.h"

namespace deltawire {

// The digest, from both lanes of sum128 with all words of a tensor added.
Digest finish_sums(std::array<uint64_t, 2> lanes, uint64_t size_bytes);

// Sums that several threads add to at once.
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

// Corrects the sums of an array for changes of single elements.

// `bytes` are those that were added to `sums`, from offset 0, and have not been changed yet.
// Positions count elements of `width` bytes; they ascend and lie inside.
void replace_elements(unsigned width, Bytes bytes, std::span<const uint64_t> positions,
                      Bytes values, ThreadPool* pool, Sums* sums);

}  // namespace deltawire

// What encoder and decoder of `tight` share: blocks, and the memory of those who work on them.
#pragma once

#include <algorithm>
#include <memory>

#include "base/thread_pool.h"

namespace deltawire::tight {

// Memory that a thread keeps from block to block and from array to array.
template <class Scratch>
Scratch& thread_scratch() {
  static thread_local const auto kScratch = std::make_unique<Scratch>();
  return *kScratch;
}

// Neighbouring blocks go to one thread in a run: it can ask for the next one's weights in time.
struct BlockRanges {
  size_t num_blocks, length, count;
  BlockRanges(size_t blocks, const ThreadPool* pool)
      : num_blocks(blocks),
        length(std::clamp<size_t>(blocks / (num_workers(pool) * 4), 1, 16)),
        count((blocks + length - 1) / length) {}
};

}  // namespace deltawire::tight

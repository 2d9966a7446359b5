// Memory for many arrays of any size: pieces of large allocations, since each of these takes its
// time and is rounded up to megabytes.
#pragma once

#include <list>
#include <map>

#include "kernels/cuda/memory.h"

namespace deltawire::cuda {

class SlotMemory {
 public:
  explicit SlotMemory(Place place) : place_(place) {}

  // Aligned to 256 bytes; stays where it is. null for no bytes.
  Result<uint8_t*> take(uint64_t num_bytes);
  void give_back(const uint8_t* piece, uint64_t num_bytes) noexcept;

  uint64_t num_bytes() const noexcept { return num_bytes_; }  // allocated

 private:
  struct Chunk {
    Buffer buffer;
    uint64_t used = 0;                       // up to here pieces were cut off
    uint64_t alive = 0;                      // of them; without any the chunk goes
    std::multimap<uint64_t, uint64_t> free;  // pieces that came back: size, offset
    uint8_t* cut(uint64_t num_bytes);
  };

  const Place place_;
  std::list<Chunk> chunks_;
  uint64_t num_bytes_ = 0;
};

}  // namespace deltawire::cuda

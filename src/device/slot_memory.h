// Memory for many arrays of any size, cut from large allocations, because each allocation is slow
// and rounded up to megabytes.
#pragma once

#include <list>
#include <map>

#include "kernels/cuda/memory.h"

namespace deltawire::cuda {

class SlotMemory {
 public:
  explicit SlotMemory(Place place) : place_(place) {}

  // Returns memory aligned to 256 bytes that does not move; null for 0 bytes.
  Result<uint8_t*> take(uint64_t num_bytes);
  void give_back(const uint8_t* piece, uint64_t num_bytes) noexcept;

  uint64_t num_bytes() const noexcept { return num_bytes_; }  // allocated

 private:
  struct Chunk {
    Buffer buffer;
    uint64_t used = 0;                       // end of the pieces cut so far
    uint64_t alive = 0;                      // pieces in use; without any the chunk is freed
    std::multimap<uint64_t, uint64_t> free;  // returned pieces: size, offset
    uint8_t* cut(uint64_t num_bytes);
  };

  const Place place_;
  std::list<Chunk> chunks_;
  uint64_t num_bytes_ = 0;
};

}  // namespace deltawire::cuda

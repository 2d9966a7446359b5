// Listed elements of many arrays, exchanged with values beside the lists.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/memory.h"

namespace deltawire::cuda {

// A list for one array. Offsets and values are where the device can reach them, aligned to 16
// bytes; the array may be at any alignment.
struct SwapList {
  void* data;
  const uint32_t* offsets;  // of elements; none of them twice, in no other list of the same memory
  void* values;
  uint64_t count;
  uint32_t width;        // 1, 2, 4 or 8
  uint32_t first_chunk;  // filled in by SwapTable
};

// What the device has to know of the lists.
class SwapTable {
 public:
  // Waits.
  static Result<SwapTable> make(std::vector<SwapList> lists, Stream stream);
  uint64_t device_bytes() const noexcept { return memory_.size(); }

  // All lists in one launch; does not wait.
  Status swap(Stream stream) const;

 private:
  Buffer memory_;
  uint64_t num_chunks_ = 0;
  const SwapList* lists_ = nullptr;
  const uint32_t* owners_ = nullptr;  // whose a chunk is
};

}  // namespace deltawire::cuda

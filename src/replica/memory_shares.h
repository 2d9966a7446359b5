// How what a replica may take is shared among what it holds at once.
#pragma once

#include <cstdint>

namespace deltawire {

inline constexpr uint64_t kUsualMemory = uint64_t{2} << 30;

struct StageMemory {
  uint64_t wave_bytes;    // of tensors that are worked on at once: their copies and what differs
  uint64_t large_tensor;  // copies of larger ones live in a file
  uint64_t list_bytes;    // of positions and values while a sparse step is decoded
  uint64_t slab_bytes;    // of one entry, and of the entries that are written together
};

inline StageMemory share_stage_memory(uint64_t limit) {
  return {limit / 4, limit / 8, limit / 16, limit / 32};
}

// Of a replica of tensors: what waits for commit(), and what is worked with meanwhile.
struct TensorMemory {
  uint64_t waiting_bytes;
  StageMemory work;
};

inline TensorMemory share_tensor_memory(uint64_t limit) {
  return {limit / 2, share_stage_memory(limit / 2)};
}

}  // namespace deltawire

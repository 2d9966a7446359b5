// `exponents` on the device: blocks of whole arrays to coded blocks, and back. The bytes are those
// that the CPU writes.
#pragma once

#include <cstdint>

#include "kernels/cuda/diff.h"
#include "kernels/cuda/lists.h"
#include "kernels/key_planes.h"

namespace deltawire::cuda {

// A block on the device; pointers need no alignment. One that has the size of its elements is raw.
struct ExponentsBlock {
  void* data;      // of its array; not written to by plan and write
  uint64_t first;  // element of the array
  uint8_t* coded;
  uint32_t coded_bytes;
  uint32_t num_elements;
  uint32_t array;  // in the call, for messages
  uint32_t block;  // in its array, likewise
  uint32_t base;   // of its keys
  uint32_t unused = 0;
};

// What is found out of a block before it is written.
struct ExponentsPlan {
  uint32_t base;
  uint32_t num_far;
};

// All tables and the status are on the device. Blocks of a call are of one form.

// `plans`: one for each block. Blocks have at most 2^16 elements. New weights are read as `kind`.
Status plan_exponents(KeyForm form, NewKind kind, const ExponentsBlock* blocks, uint32_t num_blocks,
                      ExponentsPlan* plans, Stream stream);
// A block that is not what was planned sets the status, and is not written.
Status write_exponents(KeyForm form, NewKind kind, const ExponentsBlock* blocks,
                       uint32_t num_blocks, PatchStatus* status, Stream stream);

// Blocks have at most 2^20 elements; their sizes and bases have been checked.
Status check_exponents(KeyForm form, const ExponentsBlock* blocks, uint32_t num_blocks,
                       PatchStatus* status, Stream stream);
// After it: writes all elements, or none if the status says that something is wrong.
Status join_exponents(KeyForm form, const ExponentsBlock* blocks, uint32_t num_blocks,
                      const PatchStatus* status, Stream stream);

}  // namespace deltawire::cuda

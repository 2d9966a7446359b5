// Wider floats as bf16, for those who want the bytes. Codecs and digests round as they read.
#pragma once

#include <cstdint>

#include "kernels/cuda/diff.h"

namespace deltawire::cuda {

// Elements [first, first + count) of `wide`, on the device, into `out`, likewise.
Status round_to_bf16(const void* wide, NewKind kind, uint64_t first, uint64_t count, uint16_t* out,
                     Stream stream);

}  // namespace deltawire::cuda

// New arrays as elements of the old type, for those who want the bytes. Codecs and digests convert
// as they read.
#pragma once

#include <cstdint>

#include "kernels/cuda/diff.h"

namespace deltawire::cuda {

// Bytes of an element, of all but kSame.
constexpr unsigned converted_width(NewKind kind) { return kind == NewKind::kMarkedFp8 ? 1 : 2; }

// Elements [first, first + count) of an array on the device, to `out`, likewise.
Status convert(const void* data, NewKind kind, uint64_t first, uint64_t count, void* out,
               Stream stream);

}  // namespace deltawire::cuda

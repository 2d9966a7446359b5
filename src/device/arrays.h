// What callers say of their arrays, checked, in the words of codecs and kernels.
#pragma once

#include <cstdint>

#include "codec/cuda/device_codec.h"
#include "device/cuda.h"

namespace deltawire::cuda {

// How elements of `given` are read as elements of `as`.
Result<NewKind> kind_of(DType given, DType as);

// InvalidArgument unless there is memory for what is said to be there, in whole elements.
Status check_memory(DType dtype, const void* data, uint64_t size_bytes);

Layout layout_of(const DeviceArray& array);

Result<DevicePair> device_pair(const Pair& pair);

}  // namespace deltawire::cuda

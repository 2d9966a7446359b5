// `adaptive` of arrays on a device: the host codes what was found there.
#pragma once

#include <span>

#include "codec/cuda/device_codec.h"

namespace deltawire::cuda {

// Each payload holds the lists of an array: positions, new values, old values. It becomes what
// `adaptive` makes of them. Arrays side by side.
Status code_adaptive(std::span<const DevicePair> pairs, const DeviceOptions& options,
                     std::span<DeviceEncoded> out);

}  // namespace deltawire::cuda

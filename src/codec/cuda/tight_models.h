// Models for arrays on a device, fitted to the same samples that the CPU's encoder takes.
#pragma once

#include <functional>
#include <vector>

#include "codec/cuda/device_codec.h"
#include "codec/tight_model.h"

namespace deltawire::cuda {

// Of arrays of one width and kind, none of them empty. `meanwhile` is called while the device
// counts.
Result<std::vector<tight::Model>> fit_models(std::span<const DevicePair> pairs,
                                             const DeviceOptions& options, Stream stream,
                                             const std::function<Status()>& meanwhile);

// Arrays of a single block are small, and a model of their own may cost more than it saves: which
// of two is better has to be tried. They are fetched and left to the CPU's encoder.
Result<std::vector<DeviceEncoded>> encode_on_host(std::span<const DevicePair> pairs,
                                                  const DeviceOptions& options, Stream stream);

}  // namespace deltawire::cuda

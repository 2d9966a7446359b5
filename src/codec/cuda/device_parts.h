// The parts that device_codec.cpp puts together, one for each family of codecs. Arrays of a call
// have one width and one kind, and none is empty.
#pragma once

#include "codec/cuda/device_codec.h"

namespace deltawire::cuda {

// Tables come off the scratch, half of it at most: `num_bytes` that are going to be there, or those
// that are. Slots of an earlier call that are larger than the rest are given back.
DeviceOptions less_tables(const DeviceOptions& options, uint64_t num_bytes);

Result<std::vector<DeviceEncoded>> encode_lists(CodecId codec, std::span<const DevicePair> pairs,
                                                const DeviceOptions& options, Stream stream,
                                                DeviceTimes* times);
Result<std::vector<DeviceEncoded>> encode_tight(std::span<const DevicePair> pairs,
                                                const DeviceOptions& options, Stream stream,
                                                DeviceTimes* times);

// A patch of the call and its number there, for messages.
struct NumberedPatch {
  DevicePatch patch;
  size_t number;
};
// Patches of one codec and width. With `write` unset they are only checked. Lists and
// `exponents` are given what tables leave of the scratch; `tight` takes its tables off itself, when
// it knows their size.
Status apply_lists_patches(std::span<const NumberedPatch> patches, const DeviceOptions& options,
                           bool write, Stream stream, DeviceTimes* times);
Status apply_exponents_patches(std::span<const NumberedPatch> patches, const DeviceOptions& options,
                               bool write, Stream stream, DeviceTimes* times);
Status apply_tight_patches(std::span<const NumberedPatch> patches, const DeviceOptions& options,
                           bool write, Stream stream, DeviceTimes* times);

}  // namespace deltawire::cuda

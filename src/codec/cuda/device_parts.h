// The parts that device_codec.cpp puts together, one for each family of codecs. Arrays of a call
// have one width and one kind, and none is empty.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/cuda/device_codec.h"
#include "kernels/cuda/lists.h"

namespace deltawire::cuda {

// One piece of device memory, cut into typed pieces in turn.

// Where pieces begin, counted from where the memory does: that has to be so aligned itself.
inline constexpr size_t kCarveAlign = 256;

inline constexpr uint64_t carved_bytes(uint64_t num_bytes) {
  return (num_bytes + kCarveAlign - 1) / kCarveAlign * kCarveAlign;
}

class Carve {
 public:
  explicit Carve(uint8_t* begin) : at_(begin) {}  // null: only to learn the size

  template <class T>
  T* take(size_t count) {
    T* const piece = reinterpret_cast<T*>(at_ + size_);
    size_ += carved_bytes(count * sizeof(T));
    return piece;
  }
  size_t size() const { return size_; }

 private:
  uint8_t* at_;
  size_t size_ = 0;
};

// A device's word on a batch of patches as a Status.

// `number_of` gives the number that an array of the batch has in the call.
template <class NumberOf>
Status to_status(const PatchStatus& found, const char* where, const NumberOf& number_of) {
  if (found.code == 0) return {};
  return corruption(std::string(describe(PatchError(found.code))) + ", " + where + " " +
                    std::to_string(found.where))
      .at("patch " + std::to_string(number_of(found.array)));
}

// Tables come off the scratch, half of it at most: `num_bytes` that are going to be there, or those
// that are. Slots of an earlier call that are larger than the rest are given back.
DeviceOptions less_tables(const DeviceOptions& options, uint64_t num_bytes);

Result<std::vector<DeviceEncoded>> encode_lists(CodecId codec, std::span<const DevicePair> pairs,
                                                const DeviceOptions& options, Stream stream);
Result<std::vector<DeviceEncoded>> encode_tight(std::span<const DevicePair> pairs,
                                                const DeviceOptions& options, Stream stream);

// A patch of the call and its number there, for messages.
struct NumberedPatch {
  DevicePatch patch;
  size_t number;
};
// Patches of one codec and width. With `write` unset they are only checked. Lists and
// `exponents` are given what tables leave of the scratch; `tight` takes its tables off itself, when
// it knows their size.
Status apply_lists_patches(std::span<const NumberedPatch> patches, const DeviceOptions& options,
                           bool write, Stream stream);
Status apply_exponents_patches(std::span<const NumberedPatch> patches, const DeviceOptions& options,
                               bool write, Stream stream);
Status apply_tight_patches(std::span<const NumberedPatch> patches, const DeviceOptions& options,
                           bool write, Stream stream);

}  // namespace deltawire::cuda

// The state of a Context.
#pragma once

#include <algorithm>
#include <memory>

#include "base/thread_pool.h"
#include "codec/cuda/device_codec.h"
#include "codec/cuda/workspace.h"
#include "device/cuda.h"
#include "device/host_decode.h"
#include "device/lanes.h"

namespace deltawire::cuda {

struct Context::Impl {
  Impl(const ContextOptions& given, int device_number)
      : options(given),
        device(device_number),
        pool(given.threads),
        checked(std::min(CheckedPatches::kMostBytes,
                         given.kept_bytes.value_or(CheckedPatches::kMostBytes))) {}

  const ContextOptions options;
  const int device;
  ThreadPool pool;
  Workspace workspace;
  const std::shared_ptr<SpareVectors> spare = std::make_shared<SpareVectors>(options.spare_bytes);
  std::unique_ptr<Lanes> lanes;  // created when a snapshot in host memory is compared
  CheckedPatches checked;        // decoded by the host

  uint64_t scratch_bytes() const noexcept { return options.scratch_bytes; }
  Lane lane() { return {&workspace, &pool, options.scratch_bytes, false, spare.get()}; }
  DeviceOptions codec_options() { return lane().codec_options(); }
};

// For the device layer and its tests.
struct ContextInternals {
  static Context::Impl& of(const Context& context) noexcept { return *context.impl_; }
};

// ---- what Context and DeviceSnapshot share

// How elements of `given` are read as elements of `as`.
Result<NewKind> kind_of(DType given, DType as);

// InvalidArgument unless the array has memory and whole elements.
Status check_memory(DType dtype, const void* data, uint64_t size_bytes);

Layout array_layout(const DeviceArray& array);

Result<DevicePair> device_pair(const Pair& pair);

// Uses the current device.
struct EncodeAs {
  std::string_view codec;
  NewDigests digests = NewDigests::kNone;
};
Result<std::vector<Coded>> encode_pairs(const Lane& lane, const EncodeAs& as,
                                        std::span<const DevicePair> pairs, Stream stream);
// For old arrays in pinned host memory.
Result<std::vector<Coded>> encode_pinned(Context::Impl& impl, const EncodeAs& as,
                                         std::span<const DevicePair> pairs, Stream stream);

enum class ApplyMode : uint8_t { kCheck, kAllOrNothing, kAnyway, kChecked };
// kAnyway: after a failure the arrays are undefined; avoids a second pass if the scratch is small.
// kChecked: the same for patches that passed the last kCheck, reusing its results. `digests`: as in
// Context::apply_checked(); may be null.
using PatchedDigests = std::vector<std::optional<Digest>>;
Status apply_patches(Context::Impl& impl, std::span<const Patch> patches, ApplyMode mode,
                     Stream stream, PatchedDigests* digests = nullptr);

// Changes of `tight` patches as lists; writes nothing to arrays. See DeviceOptions::lists.
Status list_changes(Context::Impl& impl, std::span<const Patch> patches, ChangeLists* lists,
                    Stream stream);

// sum128 of each array. With `copies` (device memory for each array, aligned to 16 bytes), the same
// pass copies the arrays there, and the digests are those of the copies.
Result<std::vector<Digest>> digests_of(Context::Impl& impl, std::span<const Contents> arrays,
                                       Stream stream, std::span<uint8_t* const> copies = {});

// Copies bytes [offset, offset + out.size()) of the converted array to host memory. Uses the
// current device.
Status fetch_bytes(const Lane& lane, const Contents& contents, uint64_t offset,
                   std::span<uint8_t> out, Stream stream);
// Copies host memory to the device, or to pinned memory. Waits. Uses the current device.
Status send_bytes(Context::Impl& impl, std::span<const uint8_t> bytes, void* to, Stream stream);
// fetch_bytes() for kinds other than kSame.
Status fetch_converted(const Lane& lane, const void* data, NewKind kind, uint64_t offset,
                       std::span<uint8_t> out, Stream stream);

}  // namespace deltawire::cuda

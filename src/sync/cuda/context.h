// What a Context keeps.
#pragma once

#include "base/thread_pool.h"
#include "codec/cuda/device_codec.h"
#include "codec/cuda/workspace.h"
#include "deltawire/cuda.h"

namespace deltawire::cuda {

struct Context::Impl {
  Impl(const ContextOptions& given, int device_number)
      : options(given), device(device_number), pool(given.threads) {}

  const ContextOptions options;
  const int device;
  ThreadPool pool;
  Workspace workspace;
  Buffer staging;      // where snapshots in host memory are brought to; comes off the scratch
  bool stages = true;  // else they are read over the bus as they are compared; for benches

  uint64_t scratch_bytes() const noexcept { return options.scratch_bytes - staging.size(); }
  DeviceOptions codec_options() {
    DeviceOptions given;
    given.scratch_bytes = scratch_bytes();
    given.workspace = &workspace;
    given.pool = &pool;
    return given;
  }
};

// ---- what Context and DeviceSnapshot share

Result<std::vector<Coded>> encode_pairs(Context::Impl& impl, std::string_view codec,
                                        std::span<const DevicePair> pairs, Stream stream);

enum class ApplyMode : uint8_t { kCheck, kAllOrNothing, kAnyway };
// kAnyway: after a failure arrays hold anything; saves a second look where the scratch is small.
Status apply_patches(Context::Impl& impl, std::span<const Patch> patches, ApplyMode mode,
                     Stream stream);

Result<std::vector<Digest>> digests_of(Context::Impl& impl, DigestKind kind,
                                       std::span<const Contents> arrays, Stream stream);

// Bytes [offset, offset + out.size()) of the array as it is seen. `out` is host memory.
Status fetch_bytes(Context::Impl& impl, const Contents& contents, uint64_t offset,
                   std::span<uint8_t> out, Stream stream);

}  // namespace deltawire::cuda

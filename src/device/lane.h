// What one strand of work has for itself: a call of a Context, or one of several that a call is
// shared out to.
#pragma once

#include "codec/cuda/device_codec.h"
#include "codec/cuda/workspace.h"

namespace deltawire::cuda {

struct Lane {
  Workspace* workspace = nullptr;
  ThreadPool* pool = nullptr;
  uint64_t scratch_bytes = 0;
  bool within_scratch = false;  // see DeviceOptions
  SpareVectors* spare = nullptr;

  DeviceOptions codec_options() const {
    DeviceOptions options;
    options.scratch_bytes = scratch_bytes;
    options.workspace = workspace;
    options.pool = pool;
    options.spare = spare;
    options.within_scratch = within_scratch;
    return options;
  }
};

}  // namespace deltawire::cuda

// What a TensorDelta holds.
#pragma once

#include <vector>

#include "delta/delta_reader.h"
#include "deltawire/delta.h"

namespace deltawire {

struct TensorDelta::Impl {
  Delta delta;
  std::vector<std::vector<uint8_t>> payloads;  // of entries that come from no file
  std::vector<TensorDeltaEntry> entries;

  void summarise();  // fills `entries` from `delta`
};

}  // namespace deltawire

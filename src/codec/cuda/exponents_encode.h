// Whole arrays on a GPU as payloads of `exponents`: planned there, then coded, as many blocks at a
// time as somebody asks for. No payload need be held.
#pragma once

#include <span>
#include <vector>

#include "codec/cuda/device_codec.h"
#include "codec/exponents.h"

namespace deltawire::cuda {

struct DeviceWhole {
  Layout layout;
  const void* data = nullptr;
  uint64_t num_elements = 0;
  NewKind kind = NewKind::kSame;  // else the layout is bf16's, and data is read as wider floats
};

using BlockPlans = std::vector<exponents::BlockPlan>;

// Of every block of every array; what exponents::plan_block() says of the same bytes. Waits.
Result<std::vector<BlockPlans>> plan_whole(std::span<const DeviceWhole> arrays,
                                           const DeviceOptions& options, Stream stream);

// Blocks [first, first + plans.size()) of the array, one after the other, to `out`, host memory of
// their size, which had better be pinned. Io if the weights are not those that were planned. Waits.
Status code_blocks(const DeviceWhole& array, size_t first,
                   std::span<const exponents::BlockPlan> plans, MutableBytes out,
                   const DeviceOptions& options, Stream stream);

// Both: what exponents::encode_array() makes of the same bytes. Waits.
Result<std::vector<uint8_t>> encode_whole(const DeviceWhole& array, const DeviceOptions& options,
                                          Stream stream);

}  // namespace deltawire::cuda

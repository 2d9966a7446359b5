// Applies entries to a rank's boxes of a tensor in memory. The publisher and the receiver may shard
// the tensor differently.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "codec/regions.h"
#include "deltawire/status.h"
#include "deltawire/tensor.h"
#include "format/delta_part.h"

namespace deltawire {

// One box: a slice of a fused parameter, a shard, an expert. The last dimension is contiguous.
struct LocalBox {
  Box box;                       // without dimensions: the whole tensor
  uint8_t* data = nullptr;       // the first element
  std::vector<int64_t> strides;  // bytes, for all dimensions but the last; empty: contiguous
};

// The parts of the entry's box that the boxes hold, as regions of the entry's array.
// InvalidArgument for boxes that leave the tensor or cut a byte.
Result<std::vector<Region>> regions_of(const DeltaEntry& entry, std::span<const LocalBox> boxes);

// Patches the held parts of the entry's box in place. Positions of `read_old` are in the entry's
// array; see Codec::apply_to_regions.
Status apply_to_boxes(const DeltaEntry& entry, Bytes payload, std::span<const LocalBox> boxes,
                      const ReadOld& read_old, ThreadPool* pool);

}  // namespace deltawire

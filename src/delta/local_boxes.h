// A rank's boxes of a tensor, where they lie in its memory, patched by entries that know nothing of
// them: every sharding of a publisher onto every sharding of a receiver.
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

// One box: a slice of a fused parameter, a shard, an expert. The last dimension lies in order.
struct LocalBox {
  Box box;                       // without dimensions: all of the tensor
  uint8_t* data = nullptr;       // its first element
  std::vector<int64_t> strides;  // bytes, for each dimension but the last; empty: in order
};

// What of the entry's box the boxes hold, as regions of its array. InvalidArgument for boxes that
// leave the tensor or cut a byte.
Result<std::vector<Region>> regions_of(const DeltaEntry& entry, std::span<const LocalBox> boxes);

// Patches all that is held of the entry's box, in place. `read_old` counts in the entry's array:
// see Codec::apply_to_regions.
Status apply_to_boxes(const DeltaEntry& entry, Bytes payload, std::span<const LocalBox> boxes,
                      const ReadOld& read_old, ThreadPool* pool);

}  // namespace deltawire

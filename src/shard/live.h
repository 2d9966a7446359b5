// Shards in the caller's host memory: read box by box, and written all at once.
#pragma once

#include <span>
#include <vector>

#include "shard/shard.h"

namespace deltawire::shard {

// InvalidArgument, naming the tensor, before anything is written, when a piece is missing.
Status write_live(const ShardPlan& plan, const std::vector<StagedShard>& staged,
                  std::span<const LiveTensor> pieces);

}  // namespace deltawire::shard

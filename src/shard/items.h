// An edge's boxes in slices: both ends cut them alike, and know them by their numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "shard/shard.h"

namespace deltawire::shard {

struct Item {
  uint32_t move = 0;    // of the edge
  uint32_t tensor = 0;  // of the plan
  Box box;              // in the tensor's coordinates
  uint64_t begin = 0;   // in the contents of the move's box
  uint64_t size_bytes = 0;
};

std::vector<Item> items_of(const ShardPlan& plan, const ShardEdge& edge, uint64_t slice_bytes);

// What either end takes of `slice_bytes`.
inline constexpr uint64_t kLeastSlice = 4096, kMostSlice = uint64_t{1} << 30;

// The edges of a rank. InvalidArgument when the plan was made for another rank, or has no such
// rank; Unsupported when it has refusals.
Result<std::vector<const ShardEdge*>> edges_of_trainer(const ShardPlan& plan, unsigned trainer);
Result<std::vector<const ShardEdge*>> edges_of_engine(const ShardPlan& plan, unsigned engine);

// What a rank's boxes add to a proof.
Result<Proof> sum_pieces(const ShardPlan& plan, const std::vector<ShardPiece>& pieces,
                         const ReadShard& read, const ShardOptions& options);

}  // namespace deltawire::shard

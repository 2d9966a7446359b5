// What makes a layout sound, whoever wrote it.
#pragma once

#include <cstdint>

#include "shard/shard.h"

namespace deltawire {

// More than any cluster has: what a text may claim.
inline constexpr uint64_t kMaxShardRanks = 65536;
inline constexpr uint64_t kMaxShardTensors = uint64_t{1} << 24;
inline constexpr uint64_t kMaxDimensions = 16;
// Boxes of one tensor on one rank. Pairs of them are compared.
inline constexpr size_t kMaxPiecesOfTensor = 1024;

// Sorts tensors and pieces, makes whole boxes whole and leaves empty ones out. InvalidArgument,
// naming tensor and rank, for names that come twice, boxes outside their tensor, and overlaps.
Status settle_layout(ShardLayout* layout);

// Of one rank: a piece that holds all of `box`; null when there is none.
const ShardPiece* find_holder(const std::vector<ShardPiece>& pieces, uint32_t tensor,
                              const Box& box);
// The pieces of one tensor.
std::span<const ShardPiece> pieces_of(const std::vector<ShardPiece>& pieces, uint32_t tensor);

}  // namespace deltawire

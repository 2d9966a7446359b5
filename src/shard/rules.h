// How Megatron, vLLM and SGLang cut the tensors of Hugging Face checkpoints over ranks: one table
// of names, and the cuts behind it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "shard/shard.h"

namespace deltawire {

// "tp=2,ep=2": how many ranks share what. Ranks count with tp fastest, then fsdp, ep, pp, replicas.
struct ShardSpec {
  uint64_t tp = 1, fsdp = 1, ep = 1, pp = 1, replicated = 1;
  std::optional<uint64_t> heads, kv_heads;  // over what config.json says

  uint64_t num_ranks() const { return tp * fsdp * ep * pp * replicated; }
};
// InvalidArgument, with the words that there are.
Result<ShardSpec> parse_shard_spec(std::string_view text);

// What the cuts have to know of a model.
struct ModelFacts {
  std::optional<uint64_t> heads, kv_heads, hidden;
  uint64_t num_layers = 0, num_experts = 0;  // as the names count them
  bool has_lm_head = false;                  // else the last stage embeds, too
};
ModelFacts model_facts(const ShardSpec& spec, std::span<const ShardTensor> tensors,
                       std::string_view config);

// Where a rank stands.
struct ShardPlace {
  uint64_t tp = 0, fsdp = 0, ep = 0, pp = 0;
};
ShardPlace place_of_rank(const ShardSpec& spec, uint64_t rank);

// The boxes of a tensor that the rank at `place` holds. InvalidArgument when it cannot be cut so.
Result<std::vector<Box>> boxes_at(const ShardTensor& tensor, const ModelFacts& facts,
                                  const ShardSpec& spec, const ShardPlace& place);

}  // namespace deltawire

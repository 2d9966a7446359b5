// Models small enough to be looked at element by element, with the names of Hugging Face.
#pragma once

#include <string>
#include <vector>

#include "shard/shard.h"

namespace deltawire::testing {

inline constexpr const char* kConfig =
    R"({"hidden_size": 16, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 4})";

// Two layers, 8 heads of 4, 2 key and value heads, a vocabulary that few numbers divide.
inline std::vector<ShardTensor> dense_tensors(unsigned layers = 2) {
  const DType bf16 = DType::kBF16;
  std::vector<ShardTensor> tensors = {{"model.embed_tokens.weight", bf16, {37, 16}},
                                      {"lm_head.weight", bf16, {37, 16}},
                                      {"model.norm.weight", DType::kF32, {16}},
                                      {"scale", DType::kF64, {}}};
  for (unsigned layer = 0; layer < layers; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".";
    tensors.push_back({at + "self_attn.q_proj.weight", bf16, {32, 16}});
    tensors.push_back({at + "self_attn.q_proj.bias", bf16, {32}});
    tensors.push_back({at + "self_attn.k_proj.weight", bf16, {8, 16}});
    tensors.push_back({at + "self_attn.v_proj.weight", bf16, {8, 16}});
    tensors.push_back({at + "self_attn.o_proj.weight", bf16, {16, 32}});
    tensors.push_back({at + "mlp.gate_proj.weight", bf16, {24, 16}});
    tensors.push_back({at + "mlp.up_proj.weight", bf16, {24, 16}});
    tensors.push_back({at + "mlp.down_proj.weight", bf16, {16, 24}});
    tensors.push_back({at + "input_layernorm.weight", bf16, {16}});
  }
  return tensors;
}

// Experts one by one in the first layer, in stacks in the second; fused projections in a third.
inline std::vector<ShardTensor> expert_tensors(unsigned experts = 8) {
  std::vector<ShardTensor> tensors = dense_tensors(1);
  const DType bf16 = DType::kBF16;
  for (unsigned expert = 0; expert < experts; ++expert) {
    const std::string at = "model.layers.0.mlp.experts." + std::to_string(expert) + ".";
    tensors.push_back({at + "gate_proj.weight", bf16, {8, 16}});
    tensors.push_back({at + "up_proj.weight", bf16, {8, 16}});
    tensors.push_back({at + "down_proj.weight", bf16, {16, 8}});
  }
  tensors.push_back({"model.layers.0.mlp.gate.weight", bf16, {experts, 16}});
  tensors.push_back({"model.layers.1.mlp.experts.gate_up_proj", bf16, {experts, 16, 24}});
  tensors.push_back({"model.layers.1.mlp.experts.down_proj", bf16, {experts, 12, 16}});
  tensors.push_back({"model.layers.2.self_attn.qkv_proj.weight", bf16, {48, 16}});
  tensors.push_back({"model.layers.2.mlp.gate_up_proj.weight", bf16, {24, 16}});
  return tensors;
}

}  // namespace deltawire::testing

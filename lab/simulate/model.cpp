// The shapes of a Llama- or Qwen-like model of a given size.
#include <algorithm>
#include <cmath>

#include "cli/table.h"
#include "lab/simulate/simulation.h"
#include "tensor/text.h"

namespace deltawire::cli {
namespace {

constexpr uint64_t kMostVocabulary = 151'936;
constexpr uint64_t kMostLayers = 64;
constexpr uint64_t kUntiedFrom = 3'000'000'000;  // parameters; smaller models share the embedding

struct Dimensions {
  uint64_t hidden = 0, key_value = 0, feed_forward = 0, layers = 0, vocabulary = 0;
  bool tied = true;
};

uint64_t round_to(uint64_t value, uint64_t step) {
  return std::max(step, (value + step / 2) / step * step);
}

// Hidden size and depth as in published models (12 layers at 768, 28 at 2048, 36 at 4096), a fifth
// of the parameters in the vocabulary until it is full, and a feed-forward that takes up the rest.
Dimensions dimensions_of(uint64_t params) {
  Dimensions d;
  d.tied = params < kUntiedFrom;
  const uint64_t step = params < 100'000 ? 4 : params < 10'000'000 ? 16 : 128;
  for (d.hidden = step; 3 * d.hidden * d.hidden * d.hidden / 16 < params; d.hidden += step) {
  }
  d.layers = std::clamp<uint64_t>(d.hidden / 64, 1, kMostLayers);
  d.key_value = round_to(d.hidden / 4, step / 2);
  d.vocabulary = std::clamp<uint64_t>(params / 5 / d.hidden, 8, kMostVocabulary);
  const uint64_t embeddings = d.vocabulary * d.hidden * (d.tied ? 1 : 2);
  const uint64_t attention = 2 * d.hidden * (d.hidden + d.key_value) + 2 * d.hidden;
  const uint64_t fixed = embeddings + d.hidden + d.layers * attention;
  const uint64_t rest = params > fixed ? params - fixed : 0;
  d.feed_forward = round_to(rest / (3 * d.hidden * d.layers), step < 128 ? 1 : 8);
  return d;
}

}  // namespace

std::vector<SimulatedTensor> simulated_model(uint64_t params) {
  const Dimensions d = dimensions_of(params);
  std::vector<SimulatedTensor> model;
  const auto add_matrix = [&](const std::string& name, uint64_t out, uint64_t in) {
    const double scale = std::clamp(1 / std::sqrt(double(in)), 0.012, 0.025);
    model.push_back({name + ".weight", {out, in}, scale});
  };
  const auto add_norm = [&](const std::string& name) {
    model.push_back({name + ".weight", {d.hidden}, 0});
  };
  model.push_back({"model.embed_tokens.weight", {d.vocabulary, d.hidden}, 0.02});
  for (uint64_t layer = 0; layer < d.layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    add_norm(prefix + "input_layernorm");
    add_matrix(prefix + "self_attn.q_proj", d.hidden, d.hidden);
    add_matrix(prefix + "self_attn.k_proj", d.key_value, d.hidden);
    add_matrix(prefix + "self_attn.v_proj", d.key_value, d.hidden);
    add_matrix(prefix + "self_attn.o_proj", d.hidden, d.hidden);
    add_norm(prefix + "post_attention_layernorm");
    add_matrix(prefix + "mlp.gate_proj", d.feed_forward, d.hidden);
    add_matrix(prefix + "mlp.up_proj", d.feed_forward, d.hidden);
    add_matrix(prefix + "mlp.down_proj", d.hidden, d.feed_forward);
  }
  add_norm("model.norm");
  if (!d.tied) add_matrix("lm_head", d.vocabulary, d.hidden);
  return model;
}

Result<std::vector<SimulatedTensor>> simulated_model(const std::string& params) {
  const Result<uint64_t> count = parse_count(params);
  if (count.ok() && *count >= 1000 && *count <= 1'000'000'000'000) return simulated_model(*count);
  return invalid_argument(
      "--params: expected a count from 1000 to 1000B, such as 500M or 1.7B, got " + quote(params));
}

}  // namespace deltawire::cli

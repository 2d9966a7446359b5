#include "shard/rules.h"

#include <algorithm>

#include "base/json.h"
#include "shard/boxes.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

// How tensor parallel ranks share a tensor. What no rule names is on all of them.
enum class Cut {
  kRows,     // column-parallel: output features, and their biases
  kKvRows,   // the same for key and value heads, of which there may be fewer than ranks
  kColumns,  // row-parallel: input features; a bias is on all ranks
  kVocab,    // rows that need not be shared evenly
  kGateUp,   // two tensors in one, gate and up
  kQkv,      // three tensors in one
};

struct Rule {
  std::string_view part;  // of the name, between dots
  Cut cut;
};

// docs/carriers.md shows the same table.
constexpr Rule kRules[] = {
    {"q_proj", Cut::kRows},
    {"k_proj", Cut::kKvRows},
    {"v_proj", Cut::kKvRows},
    {"q_b_proj", Cut::kRows},
    {"kv_b_proj", Cut::kRows},
    {"qkv_proj", Cut::kQkv},
    {"o_proj", Cut::kColumns},
    {"gate_proj", Cut::kRows},
    {"up_proj", Cut::kRows},
    {"gate_up_proj", Cut::kGateUp},
    {"gate_up_proj_bias", Cut::kGateUp},
    {"down_proj", Cut::kColumns},
    {"w1", Cut::kRows},
    {"w3", Cut::kRows},
    {"w2", Cut::kColumns},
    {"embed_tokens", Cut::kVocab},
    {"lm_head", Cut::kVocab},
};

std::vector<std::string_view> parts_of(std::string_view name) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    parts.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

const Rule* rule_of(const std::vector<std::string_view>& parts) {
  for (const Rule& rule : kRules) {
    if (std::find(parts.begin(), parts.end(), rule.part) != parts.end()) return &rule;
  }
  return nullptr;
}

// The number behind one of the parts, as in "layers.12"; none where there is none.
std::optional<uint64_t> number_behind(const std::vector<std::string_view>& parts,
                                      std::string_view part) {
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    uint64_t number = 0;
    if (parts[i] == part && parse_number(parts[i + 1], &number) && number < UINT32_MAX) {
      return number;
    }
  }
  return std::nullopt;
}

// All experts of a layer in one tensor, which has them in its first dimension.
bool is_stack(const std::vector<std::string_view>& parts, const ShardTensor& tensor) {
  return std::find(parts.begin(), parts.end(), "experts") != parts.end() &&
         !number_behind(parts, "experts") && tensor.shape.size() >= 2;
}

// A stretch of one dimension.
struct Stretch {
  uint64_t begin = 0, count = 0;
};

// Of `count` things, those of the index-th of `shares`: as torch.chunk, the last ones have fewer.
Stretch chunk_of(uint64_t count, uint64_t shares, uint64_t index) {
  const uint64_t each = (count + shares - 1) / shares;
  const uint64_t begin = std::min(count, each * index);
  return {begin, std::min(count - begin, each)};
}

Result<Stretch> even_share(uint64_t count, uint64_t shares, uint64_t index) {
  if (count % shares == 0) return Stretch{count / shares * index, count / shares};
  return invalid_argument(std::to_string(count) + " cannot be shared by " + std::to_string(shares) +
                          " ranks");
}

// Heads of keys and values: with fewer heads than ranks, neighbours have the same one.
Result<Stretch> kv_share(uint64_t rows, const ModelFacts& facts, uint64_t tp, uint64_t index) {
  const uint64_t heads = facts.kv_heads.value_or(0);
  if (heads == 0 || heads >= tp || rows % heads != 0) return even_share(rows, tp, index);
  if (tp % heads != 0) {
    return invalid_argument(std::to_string(tp) + " ranks cannot share " + std::to_string(heads) +
                            " key and value heads");
  }
  return Stretch{rows / heads * (index * heads / tp), rows / heads};
}

// Several tensors in one, side by side in one dimension: each is shared for itself.
Result<std::vector<Stretch>> fused_shares(std::span<const uint64_t> sizes, const ModelFacts& facts,
                                          uint64_t tp, uint64_t index) {
  std::vector<Stretch> all;
  uint64_t begin = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const bool kv = sizes.size() == 3 && i > 0;
    DW_ASSIGN_OR_RETURN(
        Stretch own, kv ? kv_share(sizes[i], facts, tp, index) : even_share(sizes[i], tp, index));
    own.begin += begin;
    begin += sizes[i];
    all.push_back(own);
  }
  return all;
}

Result<std::vector<Stretch>> qkv_shares(uint64_t rows, const ModelFacts& facts, uint64_t tp,
                                        uint64_t index) {
  const uint64_t heads = facts.heads.value_or(0), kv = facts.kv_heads.value_or(heads);
  if (heads == 0 || rows % (heads + 2 * kv) != 0) {
    return invalid_argument("how many heads it has is not known: say heads=N,kv_heads=N");
  }
  const uint64_t each = rows / (heads + 2 * kv);
  const uint64_t sizes[] = {heads * each, kv * each, kv * each};
  return fused_shares(sizes, facts, tp, index);
}

// The dimension that tensor parallel ranks cut; none: all have all of it.
Result<std::optional<size_t>> cut_dimension(const ShardTensor& tensor, Cut cut, bool stack,
                                            const ModelFacts& facts) {
  const size_t first = stack ? 1 : 0, dimensions = tensor.shape.size() - first;
  if (tensor.shape.size() <= first) return std::optional<size_t>();
  if (cut == Cut::kColumns && dimensions < 2) return std::optional<size_t>();
  if (!stack || dimensions < 2) return std::optional<size_t>(first + (cut == Cut::kColumns));
  // A stack may have either order; what is not the model's width is what experts have inside.
  if (!facts.hidden) return invalid_argument("no config.json says what hidden_size is");
  for (size_t d = first; d < tensor.shape.size(); ++d) {
    if (tensor.shape[d] != *facts.hidden) return std::optional<size_t>(d);
  }
  return std::optional<size_t>(first + (cut == Cut::kColumns));
}

Result<std::vector<Stretch>> shares_of(const ShardTensor& tensor, Cut cut, uint64_t count,
                                       const ModelFacts& facts, uint64_t tp, uint64_t index) {
  switch (cut) {
    case Cut::kVocab:
      return std::vector<Stretch>{chunk_of(count, tp, index)};
    case Cut::kQkv:
      return qkv_shares(count, facts, tp, index);
    case Cut::kGateUp: {
      if (count % 2 != 0) return invalid_argument(std::to_string(count) + " are no two halves");
      const uint64_t halves[] = {count / 2, count / 2};
      return fused_shares(halves, facts, tp, index);
    }
    case Cut::kKvRows: {
      DW_ASSIGN_OR_RETURN(const Stretch own, kv_share(count, facts, tp, index));
      return std::vector<Stretch>{own};
    }
    case Cut::kRows:
    case Cut::kColumns:
      break;
  }
  // Scales of a tensor that is not cut at their blocks cannot be shared: that is no layout of ours.
  Result<Stretch> own = even_share(count, tp, index);
  if (!own.ok()) return std::move(own).status().at(shape_to_string(tensor.shape));
  return std::vector<Stretch>{*own};
}

Box cut(Box box, size_t dimension, Stretch stretch) {
  box.offset[dimension] += stretch.begin;
  box.extent[dimension] = stretch.count;
  return box;
}

Result<std::vector<Box>> cut_tensor_parallel(const ShardTensor& tensor, Box box, const Rule* rule,
                                             bool stack, const ModelFacts& facts, uint64_t tp,
                                             uint64_t index) {
  if (rule == nullptr || tp == 1) return std::vector<Box>{std::move(box)};
  DW_ASSIGN_OR_RETURN(const std::optional<size_t> dimension,
                      cut_dimension(tensor, rule->cut, stack, facts));
  if (!dimension) return std::vector<Box>{std::move(box)};
  DW_ASSIGN_OR_RETURN(const std::vector<Stretch> shares,
                      shares_of(tensor, rule->cut, tensor.shape[*dimension], facts, tp, index));
  std::vector<Box> boxes;
  for (const Stretch& share : shares) boxes.push_back(cut(box, *dimension, share));
  return boxes;
}

// FSDP 2: rows of what tensor parallel ranks have, some with fewer, some with none.
std::vector<Box> cut_rows(std::vector<Box> boxes, uint64_t shares, uint64_t index) {
  if (shares == 1 || boxes.empty() || boxes[0].offset.empty()) return boxes;
  uint64_t rows = 0, at = 0;
  for (const Box& box : boxes) rows += box.extent[0];
  const Stretch own = chunk_of(rows, shares, index);
  std::vector<Box> cuts;
  for (const Box& box : boxes) {
    const uint64_t begin = std::max(at, own.begin);
    const uint64_t end = std::min(at + box.extent[0], own.begin + own.count);
    if (end > begin) cuts.push_back(cut(box, 0, {begin - at, end - begin}));
    at += box.extent[0];
  }
  return cuts;
}

bool on_stage(const std::vector<std::string_view>& parts, const ModelFacts& facts, uint64_t stages,
              uint64_t stage) {
  const std::optional<uint64_t> layer = number_behind(parts, "layers");
  if (layer) return *layer * stages / facts.num_layers == stage;
  const bool embeds = std::find(parts.begin(), parts.end(), "embed_tokens") != parts.end();
  if (embeds && stage == 0) return true;
  return stage + 1 == stages && (!embeds || !facts.has_lm_head);
}

std::optional<uint64_t> config_number(const nlohmann::json& config, const char* name) {
  const auto found = config.find(name);
  if (found == config.end() || !found->is_number_unsigned()) return std::nullopt;
  const uint64_t number = found->get<uint64_t>();
  return number > 0 && number < UINT32_MAX ? std::optional(number) : std::nullopt;
}

}  // namespace

ModelFacts model_facts(const ShardSpec& spec, std::span<const ShardTensor> tensors,
                       std::string_view config) {
  ModelFacts facts;
  nlohmann::json json = config.empty() ? nlohmann::json::object() : parse_json(config);
  if (json.is_object() && json.contains("text_config") && json["text_config"].is_object()) {
    json = nlohmann::json(json["text_config"]);
  }
  if (json.is_object()) {
    facts.heads = config_number(json, "num_attention_heads");
    facts.kv_heads = config_number(json, "num_key_value_heads");
    facts.hidden = config_number(json, "hidden_size");
  }
  if (spec.heads) facts.heads = spec.heads;
  if (spec.kv_heads) facts.kv_heads = spec.kv_heads;
  for (const ShardTensor& tensor : tensors) {
    const std::vector<std::string_view> parts = parts_of(tensor.name);
    if (const auto layer = number_behind(parts, "layers")) {
      facts.num_layers = std::max(facts.num_layers, *layer + 1);
    }
    if (const auto expert = number_behind(parts, "experts")) {
      facts.num_experts = std::max(facts.num_experts, *expert + 1);
    }
    if (parts[0] == "lm_head") facts.has_lm_head = true;
  }
  return facts;
}

ShardPlace place_of_rank(const ShardSpec& spec, uint64_t rank) {
  ShardPlace place;
  place.tp = rank % spec.tp;
  rank /= spec.tp;
  place.fsdp = rank % spec.fsdp;
  rank /= spec.fsdp;
  place.ep = rank % spec.ep;
  rank /= spec.ep;
  place.pp = rank % spec.pp;
  return place;
}

Result<std::vector<Box>> boxes_at(const ShardTensor& tensor, const ModelFacts& facts,
                                  const ShardSpec& spec, const ShardPlace& place) {
  const std::vector<std::string_view> parts = parts_of(tensor.name);
  if (spec.pp > 1 && !on_stage(parts, facts, spec.pp, place.pp)) return std::vector<Box>();
  Box box = spelled_out({}, tensor.shape);
  const bool stack = is_stack(parts, tensor);
  if (const auto expert = number_behind(parts, "experts"); expert && spec.ep > 1) {
    DW_ASSIGN_OR_RETURN(const Stretch own, even_share(facts.num_experts, spec.ep, place.ep));
    if (*expert < own.begin || *expert >= own.begin + own.count) return std::vector<Box>();
  } else if (stack && spec.ep > 1) {
    DW_ASSIGN_OR_RETURN(const Stretch own, even_share(tensor.shape[0], spec.ep, place.ep));
    box = cut(std::move(box), 0, own);
  }
  DW_ASSIGN_OR_RETURN(
      std::vector<Box> boxes,
      cut_tensor_parallel(tensor, std::move(box), rule_of(parts), stack, facts, spec.tp, place.tp));
  return cut_rows(std::move(boxes), spec.fsdp, place.fsdp);
}

}  // namespace deltawire

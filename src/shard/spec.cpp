#include <algorithm>
#include <filesystem>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "shard/layout.h"
#include "shard/rules.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

struct SpecWord {
  std::string_view name;
  uint64_t ShardSpec::*count;
};

constexpr SpecWord kSpecWords[] = {
    {"tp", &ShardSpec::tp}, {"fsdp", &ShardSpec::fsdp},     {"ep", &ShardSpec::ep},
    {"pp", &ShardSpec::pp}, {"dp", &ShardSpec::replicated}, {"replicated", &ShardSpec::replicated},
};

// More than any model has.
constexpr uint64_t kMaxHeads = 1 << 20;
// Of a config.json; others are larger than this and are not read.
constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;

Status bad_spec(std::string_view text, const std::string& why) {
  return invalid_argument("layout " + quote(text) + ": " + why +
                          "; expected words such as tp=2,ep=2: tp, ep, pp, fsdp, replicated (or "
                          "dp), heads, kv_heads");
}

Status take_word(std::string_view text, std::string_view word, ShardSpec* spec) {
  const size_t equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  uint64_t count = 0;
  if (equals == std::string_view::npos || !parse_number(word.substr(equals + 1), &count) ||
      count == 0) {
    return bad_spec(text, quote(word) + " is no word=count");
  }
  if (name == "heads" || name == "kv_heads") {
    if (count > kMaxHeads) return bad_spec(text, quote(word) + " is too much");
    (name == "heads" ? spec->heads : spec->kv_heads) = count;
    return {};
  }
  for (const SpecWord& known : kSpecWords) {
    if (known.name != name) continue;
    if (spec->*known.count != 1) return bad_spec(text, quote(name) + " comes twice");
    spec->*known.count = count;
    if (count > kMaxShardRanks || spec->num_ranks() > kMaxShardRanks) {
      return bad_spec(text, "over " + std::to_string(kMaxShardRanks) + " ranks");
    }
    return {};
  }
  return bad_spec(text, "there is no " + quote(name));
}

}  // namespace

Result<ShardSpec> parse_shard_spec(std::string_view text) {
  ShardSpec spec;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    DW_RETURN_IF_ERROR(take_word(text, text.substr(begin, end - begin), &spec));
    begin = end + 1;
  }
  return spec;
}

Result<ShardLayout> ShardLayout::of_spec(std::string_view text,
                                         std::span<const ShardTensor> tensors,
                                         std::string_view config) {
  DW_ASSIGN_OR_RETURN(const ShardSpec spec, parse_shard_spec(text));
  ShardLayout layout;
  layout.tensors.assign(tensors.begin(), tensors.end());
  const ModelFacts facts = model_facts(spec, layout.tensors, config);
  for (uint64_t rank = 0; rank < spec.num_ranks(); ++rank) {
    layout.ranks.emplace_back();
    const ShardPlace place = place_of_rank(spec, rank);
    for (uint32_t number = 0; number < layout.tensors.size(); ++number) {
      Result<std::vector<Box>> boxes = boxes_at(layout.tensors[number], facts, spec, place);
      if (!boxes.ok()) {
        return std::move(boxes).status().at("layout " + quote(text) + ", tensor " +
                                            quote(layout.tensors[number].name));
      }
      for (Box& box : *boxes) layout.ranks.back().push_back({number, std::move(box)});
    }
  }
  DW_RETURN_IF_ERROR(settle_layout(&layout).at("layout " + quote(text)));
  return layout;
}

Result<ShardLayout> ShardLayout::of_spec(std::string_view text, const Checkpoint& checkpoint) {
  std::vector<ShardTensor> tensors;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    tensors.push_back({tensor.view.name, tensor.view.dtype, tensor.view.shape});
  }
  std::error_code ignored;
  const std::filesystem::path path = checkpoint.path() / "config.json";
  std::string config;
  if (std::filesystem::is_regular_file(path, ignored) &&
      std::filesystem::file_size(path, ignored) <= kMaxConfigBytes) {
    DW_ASSIGN_OR_RETURN(const auto file, MappedFile::open(path));
    config.assign(file->bytes().begin(), file->bytes().end());
    DW_RETURN_IF_ERROR(file->check_whole());
  }
  return of_spec(text, tensors, config);
}

}  // namespace deltawire

#include "serve/api/layer_shares.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "base/text.h"
#include "chain/part_reader.h"
#include "codec/tight_model.h"
#include "serve/api/answers.h"

namespace deltawire {
namespace {

constexpr uint64_t kMostBytes = uint64_t{256} << 20;  // of what was read
constexpr size_t kMostParts = 4096;                   // of a version whose headers are read
constexpr uint64_t kChangesBytes = 96;                // of a version, beside its tensors
constexpr uint64_t kMostSamples = 2000;
constexpr std::array<std::string_view, 6> kTypes = {"embeddings", "attention", "mlp",
                                                    "experts",    "norms",     "other"};

// The names' common beginning, in whole components.
std::string common_name(const std::string& a, const std::string& b) {
  size_t length = 0;
  for (size_t i = 0; i <= std::min(a.size(), b.size()); ++i) {
    const bool ends_a = i == a.size() || a[i] == '.', ends_b = i == b.size() || b[i] == '.';
    if (ends_a && ends_b) length = i;
    if (i == a.size() || i == b.size() || a[i] != b[i]) break;
  }
  return a.substr(0, length);
}

}  // namespace

std::string_view module_type(std::string_view tensor) {
  struct Rule {
    std::string_view type;
    std::vector<std::string_view> words;
  };
  static const std::vector<Rule> kRules = {
      {"norms", {"norm", "ln_", ".ln", "layernorm"}},
      {"experts", {"expert"}},
      {"attention", {"attn", "attention", "q_proj", "k_proj", "v_proj", "o_proj", "qkv"}},
      {"embeddings", {"embed", "wte", "wpe", "lm_head"}},
      {"mlp", {"mlp", "ffn", "feed_forward", "up_proj", "down_proj", "gate_proj", ".fc", "c_fc"}}};
  const std::string lower = lower_case(tensor);
  for (const Rule& rule : kRules) {
    for (const std::string_view word : rule.words) {
      if (lower.find(word) != lower.npos) return rule.type;
    }
  }
  return "other";
}

std::optional<uint64_t> layer_of(std::string_view tensor) {
  for (const std::string_view word : split_text(tensor, '.')) {
    uint64_t layer = 0;
    if (word.size() < 7 && parse_number(word, &layer)) return layer;
  }
  return {};
}

Json tensor_json(const TensorSpec& tensor) {
  return {{"name", tensor.name},
          {"dtype", dtype_name(tensor.dtype)},
          {"shape", tensor.shape},
          {"type", module_type(tensor.name)},
          {"layer", or_null(layer_of(tensor.name))}};
}

Result<std::vector<EntryRecord>> read_entries(Store& store, const Manifest& manifest) {
  std::vector<EntryRecord> all;
  if (manifest.parts.size() > kMostParts) return unsupported("too many parts to look at");
  for (const PartRef& part : manifest.parts) {
    DW_ASSIGN_OR_RETURN(const std::string header, read_header_alone(store, part));
    DW_ASSIGN_OR_RETURN(
        std::vector<EntryRecord> entries,
        located(parse_part_header(header, part.size_bytes), store.url() + "/" + part.name));
    all.insert(all.end(), std::make_move_iterator(entries.begin()),
               std::make_move_iterator(entries.end()));
  }
  return all;
}

Result<std::optional<double>> read_one_ulp(Store& store, const Manifest& manifest,
                                           const std::string& tensor) {
  if (manifest.kind != VersionKind::kDelta) return std::optional<double>();
  if (manifest.parts.size() > kMostParts) return unsupported("too many parts to look at");
  std::optional<EntryRecord> largest;
  const PartRef* part_of_largest = nullptr;
  uint64_t payload_at = 0;
  for (const PartRef& part : manifest.parts) {
    DW_ASSIGN_OR_RETURN(const std::string header, read_header_alone(store, part));
    DW_ASSIGN_OR_RETURN(const std::vector<EntryRecord> entries,
                        parse_part_header(header, part.size_bytes));
    uint64_t at = header.size();
    for (const EntryRecord& one : entries) {
      const bool is_larger = !largest || one.entry.num_changed > largest->entry.num_changed;
      if (one.entry.tensor == tensor && is_larger) {
        largest = one;
        part_of_largest = &part;
        payload_at = at;
      }
      at += one.payload_bytes;
    }
  }
  if (!largest || largest->entry.codec != CodecId::kTight) return std::optional<double>();
  if (dtype_bits(largest->entry.dtype) < 8) return std::optional<double>();  // several in a byte
  std::vector<uint8_t> front(
      size_t(std::min<uint64_t>(largest->payload_bytes, tight::kMaxModelBytes)));
  DW_RETURN_IF_ERROR(store.read(part_of_largest->name, payload_at, front));
  return tight::share_of_unit_steps(largest->entry.layout(), front);
}

void LayerShares::set_schema(const PartRef& name, const Schema& schema) {
  schema_ = name;
  tensors_ = schema.tensors;
  elements_.clear();
  numbers_.clear();
  for (const TensorSpec& tensor : tensors_) {
    numbers_.emplace(tensor.name, uint32_t(elements_.size()));
    elements_.push_back(num_elements(tensor.shape).ok() ? *num_elements(tensor.shape) : 0);
  }
  changes_.clear();
  bytes_ = 0;
  make_rows();
}

void LayerShares::make_rows() {
  std::map<std::tuple<int, uint64_t, size_t>, Row> rows;
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    const std::string& name = tensors_[i].name;
    const std::string_view type = module_type(name);
    const std::optional<uint64_t> layer = layer_of(name);
    const int place = layer ? 1 : type == "embeddings" ? 0 : 2;
    const auto order = std::find(kTypes.begin(), kTypes.end(), type) - kTypes.begin();
    Row& row = rows[{place, layer.value_or(0), size_t(order)}];
    row.name = row.tensors.empty() ? name : common_name(row.name, name);
    row.type = type;
    row.layer = layer;
    row.tensors.push_back(i);
    row.elements += elements_[i];
  }
  rows_.clear();
  for (auto& [key, row] : rows) {
    if (row.name.empty()) row.name = row.type;
    rows_.push_back(std::move(row));
  }
}

void LayerShares::add(uint64_t version, const PartRef& schema, bool is_delta,
                      const std::vector<EntryRecord>& entries) {
  if (schema_ != schema) return;
  Changes changes{.is_delta = is_delta, .last_used = ++uses_};
  std::map<uint32_t, float> by_tensor;  // one in boxes has several entries
  for (const EntryRecord& record : entries) {
    if (const auto number = find(record.entry.tensor)) {
      by_tensor[*number] += float(record.entry.num_changed);
    }
  }
  changes.tensors.assign(by_tensor.begin(), by_tensor.end());
  bytes_ += kChangesBytes + changes.tensors.size() * sizeof(changes.tensors[0]);
  changes_.insert_or_assign(version, std::move(changes));
  make_room();
}

void LayerShares::make_room() {
  if (bytes_ <= kMostBytes) return;
  std::vector<uint64_t> used;
  for (const auto& [version, changes] : changes_) used.push_back(changes.last_used);
  std::nth_element(used.begin(), used.begin() + ptrdiff_t(used.size() / 4), used.end());
  const uint64_t oldest = used[used.size() / 4];
  bytes_ = 0;
  std::erase_if(changes_, [&](const auto& one) { return one.second.last_used <= oldest; });
  for (const auto& [version, changes] : changes_) {
    bytes_ += kChangesBytes + changes.tensors.size() * sizeof(changes.tensors[0]);
  }
}

std::vector<uint64_t> LayerShares::samples(const VersionGrid& grid, uint64_t first,
                                           uint64_t last) const {
  const uint64_t each = kChangesBytes + tensors_.size() * sizeof(std::pair<uint32_t, float>);
  const uint64_t most = std::clamp<uint64_t>(kMostBytes / 2 / each, 1, kMostSamples);
  const uint64_t of_column =
      std::clamp<uint64_t>(most / std::max<size_t>(1, grid.num_columns), 1, grid.step);
  const size_t stride = std::max<size_t>(1, (grid.num_columns + most - 1) / most);
  std::vector<uint64_t> found;
  for (size_t column = 0; column < grid.num_columns; column += stride) {
    const uint64_t begin = std::max(grid.begin(column), first);
    const uint64_t end = std::min(grid.begin(column) + grid.step, last + 1);
    for (uint64_t i = 0; i < of_column && begin < end; ++i) {
      const uint64_t version = begin + (end - begin) * i / of_column;
      if (found.empty() || found.back() < version) found.push_back(version);
    }
  }
  return found;
}

std::vector<uint64_t> LayerShares::missing(const std::vector<uint64_t>& versions) {
  std::vector<uint64_t> missing;
  for (const uint64_t version : versions) {
    const auto found = changes_.find(version);
    if (found == changes_.end()) {
      missing.push_back(version);
    } else {
      found->second.last_used = ++uses_;
    }
  }
  return missing;
}

std::optional<uint32_t> LayerShares::find(const std::string& tensor) const {
  const auto found = numbers_.find(tensor);
  return found == numbers_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<std::vector<std::optional<double>>> LayerShares::shares(
    const VersionGrid& grid, const std::vector<uint64_t>& samples,
    const std::vector<std::vector<uint32_t>>& groups, std::vector<uint32_t>* counts) const {
  constexpr uint32_t kNone = UINT32_MAX;
  std::vector<uint32_t> group_of(tensors_.size(), kNone);
  std::vector<double> elements(groups.size(), 0);
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const uint32_t tensor : groups[g]) {
      group_of[tensor] = uint32_t(g);
      elements[g] += double(elements_[tensor]);
    }
  }
  std::vector<std::vector<double>> changed(groups.size(), std::vector<double>(grid.num_columns, 0));
  std::vector<uint32_t> deltas(grid.num_columns, 0);
  counts->assign(grid.num_columns, 0);
  for (const uint64_t version : samples) {
    const auto found = changes_.find(version);
    if (found == changes_.end()) continue;
    const size_t column = size_t((version - grid.first) / grid.step);
    ++(*counts)[column];
    if (!found->second.is_delta) continue;
    ++deltas[column];
    for (const auto& [tensor, count] : found->second.tensors) {
      if (group_of[tensor] != kNone) changed[group_of[tensor]][column] += double(count);
    }
  }
  std::vector<std::vector<std::optional<double>>> shares(groups.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    shares[g].resize(grid.num_columns);
    for (size_t column = 0; column < grid.num_columns; ++column) {
      if (deltas[column] == 0 || elements[g] == 0) continue;
      shares[g][column] = std::min(1.0, changed[g][column] / elements[g] / deltas[column]);
    }
  }
  return shares;
}

void LayerShares::add_one_ulp(const std::string& tensor, uint64_t version,
                              std::optional<double> share) {
  constexpr size_t kMost = 64 * 1024;
  if (one_ulp_.size() >= kMost) one_ulp_.clear();
  one_ulp_[{tensor, version}] = share;
}

const std::optional<double>* LayerShares::find_one_ulp(const std::string& tensor,
                                                       uint64_t version) const {
  const auto found = one_ulp_.find({tensor, version});
  return found == one_ulp_.end() ? nullptr : &found->second;
}

}  // namespace deltawire

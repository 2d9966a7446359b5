// The share of each tensor that versions changed, from the headers of their parts.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "deltawire/chain.h"
#include "format/delta_part.h"
#include "serve/api/version_history.h"

namespace deltawire {

// What kind of module a tensor belongs to, by its name: "attention", "mlp", "experts",
// "embeddings", "norms", "other"; and its layer, where the name has a number.
std::string_view module_type(std::string_view tensor);
std::optional<uint64_t> layer_of(std::string_view tensor);
nlohmann::json tensor_json(const TensorSpec& tensor);  // name, dtype, shape, type, layer

// The entries of all parts of a delta, as its parts' headers say. Nothing is decoded.
Result<std::vector<EntryRecord>> read_entries(Store& store, const Manifest& manifest);

// The share of steps of one ULP among a version's changes of a tensor, estimated from the front of
// its largest payload (tight::share_of_unit_steps). None: not known.
Result<std::optional<double>> read_one_ulp(Store& store, const Manifest& manifest,
                                           const std::string& tensor);

// The data of a heat map. Keeps what was read, by version, within a memory limit. For one thread.
class LayerShares {
 public:
  // What a version changed: number of a tensor, changed elements.
  struct Changes {
    bool is_delta = false;
    std::vector<std::pair<uint32_t, float>> tensors = {};
    uint64_t last_used = 0;
  };
  struct Row {
    std::string name;
    std::string_view type;
    std::optional<uint64_t> layer;
    std::vector<uint32_t> tensors;
    uint64_t elements = 0;
  };

  // The tensors of the newest version; with others all that was read is forgotten.
  void set_schema(const PartRef& name, const Schema& schema);
  bool has_schema(const PartRef& name) const { return !rows_.empty() && schema_ == name; }

  void add(uint64_t version, const PartRef& schema, bool is_delta,
           const std::vector<EntryRecord>& entries);

  // The versions that a column is made from: a few of it, the same ones each time.
  std::vector<uint64_t> samples(const VersionGrid& grid, uint64_t first, uint64_t last) const;
  // Those of them that are not there. What is there is not forgotten before what was used longer
  // ago.
  std::vector<uint64_t> missing(const std::vector<uint64_t>& versions);

  const std::vector<Row>& rows() const noexcept { return rows_; }
  const std::vector<TensorSpec>& tensors() const noexcept { return tensors_; }
  uint64_t elements(uint32_t tensor) const { return elements_[tensor]; }
  std::optional<uint32_t> find(const std::string& tensor) const;
  // For each group of tensors a share for each column: the mean of its samples. None: no delta of
  // the column was read. `counts`: versions that were read, of each column.
  std::vector<std::vector<std::optional<double>>> shares(
      const VersionGrid& grid, const std::vector<uint64_t>& samples,
      const std::vector<std::vector<uint32_t>>& groups, std::vector<uint32_t>* counts) const;

  // What read_one_ulp() said; null: it was not asked.
  void add_one_ulp(const std::string& tensor, uint64_t version, std::optional<double> share);
  const std::optional<double>* find_one_ulp(const std::string& tensor, uint64_t version) const;

 private:
  void make_rows();
  void make_room();

  PartRef schema_;
  std::vector<TensorSpec> tensors_;
  std::vector<uint64_t> elements_;
  std::map<std::string, uint32_t, std::less<>> numbers_;
  std::vector<Row> rows_;
  std::unordered_map<uint64_t, Changes> changes_;
  uint64_t bytes_ = 0, uses_ = 0;
  std::map<std::pair<std::string, uint64_t>, std::optional<double>> one_ulp_;  // tensor, version
};

}  // namespace deltawire

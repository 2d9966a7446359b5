
#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "base/text.h"
#include "codec/checks.h"
#include "dialect/foreign_file.h"
#include "dialect/trl/sparse_changes.h"
#include "dialect/trl/trl_format.h"
#include "tensor/form.h"
#include "tensor/text.h"

namespace deltawire::trl {
namespace {

// A tensor of a file: the whole of it, or changes.
struct Entry {
  TensorView values;
  SparsePositions positions;
};

Status check_counts(const Patch& patch, uint64_t changed, uint64_t num_params) {
  if (patch.total_changed_elements != changed) {
    return bad_payload("metadata \"total_changed_elements\"", changed,
                       patch.total_changed_elements);
  }
  // v3 also counts unchanged parameters that it compared.
  const bool exact = patch.v1() || !patch.sparse;
  if (exact ? patch.num_changed_params != num_params : patch.num_changed_params < num_params) {
    return bad_payload("metadata \"num_changed_params\"",
                       (exact ? "" : "at least ") + std::to_string(num_params),
                       patch.num_changed_params);
  }
  return {};
}

Result<SparsePositions> read_positions(const TensorView& tensor, const Patch& patch) {
  const bool gaps = patch.encoding == kGapDelta;
  const bool known = gaps ? tensor.dtype == DType::kU16 || tensor.dtype == DType::kU32
                          : tensor.dtype == DType::kI32;
  if (!known || tensor.shape.size() != 1) {
    return corruption("expected " + std::string(gaps ? "U16 or U32" : "I32") +
                      " of one dimension, got " + form_of(tensor));
  }
  const SparsePositions positions{tensor.bytes, dtype_bits(tensor.dtype) / 8, gaps};
  DW_RETURN_IF_ERROR(sparse_positions_end(positions).status());
  return positions;
}

// Pairs {name}.idx with {name}.val; both must be there.
Result<std::map<std::string, Entry>> pair_tensors(const SafetensorsView& view, const Patch& patch) {
  const Suffixes suffixes = patch.v1() ? kSuffixesV1 : kSuffixesV3;
  std::map<std::string, const TensorView*> positions, values;
  for (const TensorView& tensor : view.tensors) {
    const std::string& key = tensor.name;
    const bool is_values = key.ends_with(suffixes.values);
    if (!is_values && !key.ends_with(suffixes.positions)) {
      return corruption("tensor " + quote(key) + ": its name ends neither in " +
                        quote(suffixes.positions) + " nor in " + quote(suffixes.values));
    }
    const size_t end = (is_values ? suffixes.values : suffixes.positions).size();
    (is_values ? values : positions)[key.substr(0, key.size() - end)] = &tensor;
  }
  std::map<std::string, Entry> entries;
  for (const auto& [name, tensor] : positions) {
    const auto value = values.find(name);
    if (value == values.end()) return corruption("tensor " + quote(name) + ": it has no values");
    DW_ASSIGN_OR_RETURN(auto read,
                        located(read_positions(*tensor, patch), "tensor " + quote(tensor->name)));
    const TensorView& held = *value->second;
    if (held.shape != tensor->shape || dtype_bits(held.dtype) % 8 != 0) {
      return corruption("tensor " + quote(held.name) + ": expected " +
                        shape_to_string(tensor->shape) + " as its positions, got " +
                        std::string(dtype_name(held.dtype)) + " " + shape_to_string(held.shape));
    }
    entries[name] = {held, read};
    values.erase(value);
  }
  if (values.empty()) return entries;
  return corruption("tensor " + quote(values.begin()->first) + ": it has no positions");
}

// v1 also lists the parameters that it changes.
Status check_changed_params(const Patch& patch, const std::map<std::string, Entry>& entries) {
  if (!patch.v1()) return {};
  const std::set<std::string> listed(patch.changed_params.begin(), patch.changed_params.end());
  if (listed.size() != patch.changed_params.size() || listed.size() != entries.size()) {
    return bad_payload("names in metadata \"changed_params\"", entries.size(),
                       patch.changed_params.size());
  }
  for (const std::string& name : listed) {
    if (!entries.contains(name)) {
      return corruption("tensor " + quote(name) +
                        " is in metadata \"changed_params\", but not in the file");
    }
  }
  return {};
}

class TrlVersion final : public ForeignVersion {
 public:
  TrlVersion(ForeignFile file, uint64_t version, bool full) : file_(std::move(file)) {
    info_.version = version;
    info_.full = full;
    info_.num_files = 1;
    info_.file_bytes = file_.bytes().size();
    info_.content = file_.sample();
  }

  Status read() {
    DW_ASSIGN_OR_RETURN(const SafetensorsView view, parse_safetensors(file_.bytes()));
    DW_ASSIGN_OR_RETURN(const Patch patch, parse_patch(view.metadata));
    if (patch.model_version != info_.version) {
      return bad_payload("metadata \"model_version\"", info_.version, patch.model_version);
    }
    if (patch.sparse == info_.full) {
      return bad_payload("metadata \"sparse\"", info_.full ? "False" : "True",
                         info_.full ? "True" : "False");
    }
    info_.encoding = info_.full ? std::string(kFull) : patch.encoding;
    return info_.full ? read_anchor(view, patch) : read_delta(view, patch);
  }

  const std::string& where() const noexcept { return file_.where(); }
  const ForeignInfo& info() const noexcept override { return info_; }

  Status apply(size_t index, const TensorSpec& spec, MutableBytes bytes,
               ThreadPool*) const override {
    const Entry& entry = entries_[index];
    Status status = info_.full ? copy(entry, spec, bytes) : patch(entry, spec, bytes);
    return std::move(status).at(where() + ", tensor " + quote(info_.tensors[index].name));
  }

  Status check_unchanged() const override { return file_.check_unchanged(); }

 private:
  Status read_anchor(const SafetensorsView& view, const Patch& patch) {
    std::map<std::string, Entry> entries;
    uint64_t elements = 0;
    for (const TensorView& tensor : view.tensors) {
      entries[tensor.name] = {tensor, {}};
      DW_ASSIGN_OR_RETURN(const uint64_t own, num_elements(tensor.shape));
      elements += own;
    }
    if (patch.total_elements != elements) {
      return bad_payload("metadata \"total_elements\"", elements, patch.total_elements);
    }
    DW_RETURN_IF_ERROR(check_counts(patch, elements, entries.size()));
    for (auto& [name, entry] : entries) {
      info_.tensors.push_back(
          {name, entry.values.dtype, entry.values.shape, entry.values.bytes.size()});
      entries_.push_back(std::move(entry));
    }
    return {};
  }

  Status read_delta(const SafetensorsView& view, const Patch& patch) {
    DW_ASSIGN_OR_RETURN(auto entries, pair_tensors(view, patch));
    uint64_t changed = 0;
    for (const auto& [name, entry] : entries) changed += entry.positions.count();
    DW_RETURN_IF_ERROR(check_counts(patch, changed, entries.size()));
    DW_RETURN_IF_ERROR(check_changed_params(patch, entries));
    for (auto& [name, entry] : entries) {
      info_.tensors.push_back({name, entry.values.dtype, std::nullopt,
                               entry.positions.bytes.size() + entry.values.bytes.size()});
      entries_.push_back(std::move(entry));
    }
    return {};
  }

  static Status copy(const Entry& entry, const TensorSpec& spec, MutableBytes bytes) {
    if (!same_form(spec, entry.values) || bytes.size() != entry.values.bytes.size()) {
      return invalid_argument("the file has " + form_of(entry.values) + ", the checkpoint " +
                              form_of(spec));
    }
    std::ranges::copy(entry.values.bytes, bytes.begin());
    return {};
  }

  // TRL converts everything to bf16, so the values of an f32 tensor are lost.
  static Status patch(const Entry& entry, const TensorSpec& spec, MutableBytes bytes) {
    if (spec.dtype != entry.values.dtype) {
      return invalid_argument("its values are " + std::string(dtype_name(entry.values.dtype)) +
                              ", the checkpoint has " + std::string(dtype_name(spec.dtype)) +
                              ": convert the checkpoint to " +
                              std::string(dtype_name(entry.values.dtype)) + " first");
    }
    return scatter_sparse(entry.positions, dtype_bits(spec.dtype) / 8, entry.values.bytes, bytes);
  }

  ForeignFile file_;
  ForeignInfo info_;
  std::vector<Entry> entries_;  // as info_.tensors
};

Result<std::set<uint64_t>> list_folder(Store& store, std::string_view folder) {
  std::set<uint64_t> versions;
  DW_RETURN_IF_ERROR(list_all(store, folder, "", [&](const ObjectInfo& info) {
    if (const auto version = parse_file_name(folder, info.name)) versions.insert(*version);
    return true;
  }));
  return versions;
}

Result<std::optional<ObjectInfo>> find_file(Store& store, std::string_view folder,
                                            uint64_t version) {
  auto info = store.stat(file_name(folder, version));
  if (info.ok()) return std::optional(std::move(*info));
  if (info.status().code() == Code::kNotFound) return std::optional<ObjectInfo>();
  return std::move(info).status();
}

Result<bool> has_version(Store& store, uint64_t version) {
  DW_ASSIGN_OR_RETURN(const auto delta, find_file(store, kDeltas, version));
  if (delta) return true;
  DW_ASSIGN_OR_RETURN(const auto anchor, find_file(store, kAnchors, version));
  return anchor.has_value();
}

}  // namespace

Result<std::vector<uint64_t>> list_versions(Store& store) {
  DW_ASSIGN_OR_RETURN(std::set<uint64_t> versions, list_folder(store, kAnchors));
  DW_ASSIGN_OR_RETURN(const std::set<uint64_t> deltas, list_folder(store, kDeltas));
  versions.insert(deltas.begin(), deltas.end());
  return std::vector<uint64_t>(versions.begin(), versions.end());
}

Result<std::unique_ptr<ForeignVersion>> open_version(Store& store, uint64_t version) {
  DW_ASSIGN_OR_RETURN(const auto anchor, find_file(store, kAnchors, version));
  DW_ASSIGN_OR_RETURN(const auto delta, find_file(store, kDeltas, version));
  if (!anchor && !delta) {
    return not_found(store.url() + ": no version " + std::to_string(version) + ": neither " +
                     file_name(kAnchors, version) + " nor " + file_name(kDeltas, version));
  }
  bool full = !delta;
  if (anchor && delta) {
    full = true;
    if (version != 0) {
      DW_ASSIGN_OR_RETURN(const bool before, has_version(store, version - 1));
      full = !before;
    }
  }
  DW_ASSIGN_OR_RETURN(ForeignFile file, ForeignFile::open(store, full ? *anchor : *delta));
  auto opened = std::make_unique<TrlVersion>(std::move(file), version, full);
  Status status = opened->read();
  if (!status.ok()) return std::move(status).at(opened->where());
  return std::unique_ptr<ForeignVersion>(std::move(opened));
}

}  // namespace deltawire::trl

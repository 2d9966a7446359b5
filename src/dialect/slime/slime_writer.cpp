#include "dialect/slime/slime_writer.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "dialect/frames/frames.h"
#include "dialect/slime/slime_index.h"
#include "store/bodies.h"
#include "tensor/sharded_index.h"
#include "tensor/text.h"

namespace deltawire::slime {
namespace {

constexpr std::string_view kWriteFull = ": write this version full";

std::string named(std::string_view tensor) { return "slime: tensor " + quote(tensor) + ": "; }

Status check_versions(const ForeignDraft& draft) {
  if (draft.version == 0) {
    return unsupported(
        "slime: versions count from 1, engines begin with a checkpoint of their own: pull version "
        "0 "
        "to a folder for them, and write from version 1");
  }
  if (draft.full || draft.base < draft.version) return {};
  return invalid_argument("slime: version " + std::to_string(draft.version) +
                          " cannot have the base " + std::to_string(draft.base));
}

Status check_same_tensors(const ForeignDraft& draft) {
  if (draft.full) return {};
  if (!draft.removed.empty()) {
    return unsupported(named(draft.removed[0]) +
                       "it was removed since the base, which a delta cannot express" +
                       std::string(kWriteFull));
  }
  if (!draft.added.empty()) {
    return unsupported(
        named(draft.added[0]) +
        "it is new since the base, or has another dtype or shape, which a delta cannot express" +
        std::string(kWriteFull));
  }
  return {};
}

Status check_options(const ForeignOptions& options, WritePlan* plan) {
  if (options.encoding == kOverwrite) {
    plan->overwrite = !plan->full;
  } else if (!options.encoding.empty() && options.encoding != kXor &&
             !(plan->full && options.encoding == kFull)) {
    return invalid_argument("slime: encoding: expected xor or overwrite, got " +
                            quote(options.encoding));
  }
  const std::optional<ChecksumKind> kind =
      options.checksum.empty() ? ChecksumKind::kXxh3_128 : parse_checksum_kind(options.checksum);
  if (!kind) {
    return invalid_argument("slime: checksum: expected xxh3-128, blake3 or adler32, got " +
                            quote(options.checksum));
  }
  DW_RETURN_IF_ERROR(check_available(*kind).at("slime"));
  plan->checksum = *kind;
  return {};
}

Result<std::vector<uint64_t>> check_tensors(const WritePlan& plan) {
  std::vector<uint64_t> sizes;
  std::set<std::string_view> names;
  for (const TensorSpec& spec : plan.tensors) {
    if (!is_utf8(spec.name) || spec.name == kMetadataKey) {
      return unsupported(named(spec.name) + "no safetensors file can have this name: rename it");
    }
    if (!names.insert(spec.name).second) return invalid_argument(named(spec.name) + "comes twice");
    DW_ASSIGN_OR_RETURN(auto size,
                        located(tensor_size_bytes(spec.dtype, spec.shape), named(spec.name)));
    if (plan.overwrite && size > max_overwrite_bytes()) {
      return unsupported(named(spec.name) + "its " + std::to_string(size) +
                         " bytes are beyond the 32-bit byte positions of `overwrite`: take `xor`");
    }
    sizes.push_back(size);
  }
  return sizes;
}

std::vector<PlannedPart> cut_parts(const std::vector<uint64_t>& sizes, uint64_t buffer_bytes) {
  std::vector<PlannedPart> parts;
  uint64_t held = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (parts.empty() || (held != 0 && (held > buffer_bytes || sizes[i] > buffer_bytes - held))) {
      parts.push_back({"", i, i});
      held = 0;
    }
    parts.back().end = i + 1;
    held += sizes[i];
  }
  for (size_t i = 0; i < parts.size(); ++i) parts[i].file = part_name(i, parts.size());
  return parts;
}

std::string json_string(std::string_view text) {
  return json_text(nlohmann::json(text), {.ascii = true});
}

// As Python's json.dumps() does it by default.
void add_pair(std::string_view key, std::string_view json, std::string* object) {
  *object += object->size() == 1 ? "" : ", ";
  *object += json_string(key) + ": " + std::string(json);
}

}  // namespace

Result<WritePlan> plan_version(const ForeignDraft& draft, const ForeignOptions& options) {
  WritePlan plan;
  plan.version = draft.version;
  plan.base = draft.base;
  plan.full = draft.full;
  plan.tensors = draft.tensors;
  DW_RETURN_IF_ERROR(check_versions(draft));
  DW_RETURN_IF_ERROR(check_options(options, &plan));
  DW_RETURN_IF_ERROR(check_same_tensors(draft));
  DW_ASSIGN_OR_RETURN(const std::vector<uint64_t> sizes, check_tensors(plan));
  plan.parts = cut_parts(sizes, options.buffer_bytes);
  return plan;
}

std::string index_text(const WritePlan& plan) {
  std::string metadata = "{", map = "{", index = "{";
  const auto add_word = [&](std::string_view key, std::string_view value) {
    add_pair(key, json_string(value), &metadata);
  };
  add_word("version", version_text(plan.version));
  if (!plan.full) {
    add_word("base_version", version_text(plan.base));
    add_word("delta_encoding", plan.overwrite ? kOverwrite : kXor);
    add_word("compression_format", kCompression);
    add_word("checksum_format", checksum_name(plan.checksum));
  } else if (const auto total = data_size_bytes(plan.tensors); total.ok()) {
    add_pair("total_size", std::to_string(*total), &metadata);
  }
  for (const PlannedPart& part : plan.parts) {
    for (size_t i = part.begin; i < part.end; ++i) {
      add_pair(plan.tensors[i].name, json_string(part.file), &map);
    }
  }
  add_pair("metadata", metadata + "}", &index);
  add_pair("weight_map", map + "}", &index);
  return index + "}";
}

namespace {

// Removes what a killed writer left.
template <class Which>
Status remove_left_over(Store& store, uint64_t version, const Which& which) {
  std::vector<std::string> names;
  DW_RETURN_IF_ERROR(list_all(store, folder_name(version) + "/", "", [&](const ObjectInfo& info) {
    if (which(info.name)) names.push_back(info.name);
    return true;
  }));
  for (const std::string& name : names) DW_RETURN_IF_ERROR(store.remove(name));
  return {};
}

class SlimeWriter final : public ForeignWriter {
 public:
  SlimeWriter(std::shared_ptr<Store> store, const ForeignDraft& draft, WritePlan plan)
      : store_(std::move(store)), plan_(std::move(plan)), order_(draft) {}

  ~SlimeWriter() override {
    if (finished_ || put_.empty()) return;
    // Another process may have finished the version meanwhile: its parts have the same names.
    const auto index = store_->stat(index_name(plan_.version));
    if (index.ok() || index.status().code() != Code::kNotFound) return;
    for (const std::string& name : put_) (void)store_->remove(name);
  }

  Status add(const TensorSpec& spec, Bytes old_bytes, Bytes new_bytes, ThreadPool* pool) override {
    DW_RETURN_IF_ERROR(order_.next(spec, old_bytes, new_bytes).at("slime"));
    DW_RETURN_IF_ERROR(hold(spec, old_bytes, new_bytes, pool).at("tensor " + quote(spec.name)));
    return order_.num_added() == plan_.parts[part_].end ? put_part() : Status();
  }

  Status finish() override {
    if (finished_) return invalid_argument("slime: the version is finished already");
    DW_RETURN_IF_ERROR(order_.check_all_added().at("slime"));
    if (part_ != plan_.parts.size()) return invalid_argument("slime: not all parts were put");
    const std::string text = index_text(plan_);
    if (text.size() > kMaxIndexBytes) {
      return unsupported("slime: the index takes " + std::to_string(text.size()) +
                         " bytes, over the limit of " + std::to_string(kMaxIndexBytes));
    }
    DW_RETURN_IF_ERROR(remove_other_parts());
    // Parts stay if the index exists or may exist: an index of another writer names the same files.
    const Status status = store_->put_if_absent(index_name(plan_.version), MemoryBody(text));
    finished_ =
        status.ok() || status.code() == Code::kUnavailable || status.code() == Code::kConflict;
    return status;
  }

 private:
  Status hold(const TensorSpec& spec, Bytes old_bytes, Bytes new_bytes, ThreadPool* pool) {
    if (plan_.full) {
      held_.push_back({spec, {new_bytes.begin(), new_bytes.end()}});
      return {};
    }
    const auto write = plan_.overwrite ? write_overwrite_frame : write_xor_frame;
    DW_ASSIGN_OR_RETURN(ChangeFrame made, write(old_bytes, new_bytes, plan_.checksum, pool));
    checksums_.push_back({spec.name, std::move(made.checksum.hex)});
    held_.push_back({{spec.name, DType::kU8, {made.frame.size()}}, std::move(made.frame)});
    return {};
  }

  Status put_part() {
    std::ranges::sort(checksums_);
    put_.push_back(folder_name(plan_.version) + "/" + plan_.parts[part_].file);
    DW_RETURN_IF_ERROR(put_held(*store_, put_.back(), std::exchange(held_, {}),
                                plan_.full ? Metadata{{"format", "pt"}} : checksums_));
    checksums_.clear();
    ++part_;
    return {};
  }

  // Called just before the index is put: another process may be writing parts of the same names.
  Status remove_other_parts() const {
    return remove_left_over(*store_, plan_.version, [&](const std::string& name) {
      return name.ends_with(kPartEnd) && std::ranges::count(put_, name) == 0;
    });
  }

  const std::shared_ptr<Store> store_;
  const WritePlan plan_;
  DraftOrder order_;
  size_t part_ = 0;  // of plan_.parts: the one that held_ is for
  std::vector<HeldTensor> held_;
  Metadata checksums_;            // of held_; empty in a full version
  std::vector<std::string> put_;  // objects
  bool finished_ = false;
};

Status check_not_there(Store& store, uint64_t version) {
  const auto info = store.stat(index_name(version));
  if (info.ok()) {
    return conflict(store.url() + "/" + index_name(version) + ": the version is there already");
  }
  return info.status().code() == Code::kNotFound ? Status() : info.status();
}

}  // namespace

Result<std::unique_ptr<ForeignWriter>> create_writer(std::shared_ptr<Store> store,
                                                     const ForeignDraft& draft,
                                                     const ForeignOptions& options) {
  DW_ASSIGN_OR_RETURN(WritePlan plan, plan_version(draft, options));
  DW_RETURN_IF_ERROR(check_not_there(*store, plan.version));
  // Another process may put its index right now.
  const std::string index = index_name(plan.version);
  DW_RETURN_IF_ERROR(remove_left_over(*store, plan.version, [&](const std::string& name) {
    return name != index && !name.ends_with(kPartEnd);
  }));
  return std::unique_ptr<ForeignWriter>(
      std::make_unique<SlimeWriter>(std::move(store), draft, std::move(plan)));
}

}  // namespace deltawire::slime

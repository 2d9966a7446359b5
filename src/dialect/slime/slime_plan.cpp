#include "dialect/slime/slime_plan.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/json.h"
#include "dialect/frames/frames.h"
#include "dialect/slime/slime_index.h"
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
                       "it is gone since the base, which a delta cannot say" +
                       std::string(kWriteFull));
  }
  if (!draft.added.empty()) {
    return unsupported(named(draft.added[0]) +
                       "it is new since the base, or has another dtype or shape, which a delta "
                       "cannot say" +
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
  if (options.world == 1) return {};
  return unsupported("slime: one writer writes all parts of a version, got " +
                     std::to_string(options.world) + " ranks");
}

Result<std::vector<uint64_t>> check_tensors(const WritePlan& plan) {
  std::vector<uint64_t> sizes;
  std::set<std::string_view> names;
  for (const TensorSpec& spec : plan.tensors) {
    if (!is_utf8(spec.name) || spec.name == kMetadataKey) {
      return unsupported(named(spec.name) + "no safetensors file can have this name: rename it");
    }
    if (!names.insert(spec.name).second) return invalid_argument(named(spec.name) + "comes twice");
    auto size = tensor_size_bytes(spec.dtype, spec.shape);
    if (!size.ok()) return std::move(size).status().at(named(spec.name));
    if (plan.overwrite && *size > max_overwrite_bytes()) {
      return unsupported(named(spec.name) + "its " + std::to_string(*size) +
                         " bytes are beyond the 32-bit byte positions of `overwrite`: take `xor`");
    }
    sizes.push_back(*size);
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

}  // namespace deltawire::slime

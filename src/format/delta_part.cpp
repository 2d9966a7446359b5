#include "format/delta_part.h"

#include <nlohmann/json.hpp>
#include <set>

#include "base/bytes.h"
#include "base/json.h"
#include "base/text.h"
#include "format/layout.h"
#include "tensor/safetensors.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

// Our keys of the metadata.
constexpr std::string_view kPartKey = "deltawire";  // format, digest kind, base, target, check
constexpr std::string_view kEntriesKey = "deltawire.entries";
constexpr std::string_view kRemovedKey = "deltawire.removed";
constexpr std::string_view kNoTarget = "-";

Status bad_record(std::string_view name, std::string_view what, std::string_view got) {
  return corruption("entry " + quote(name) + ": " + std::string(what) + ", got " + quote(got));
}

// A payload has its tensor's name; where that is taken in this part, or looks like what follows, it
// is
// "#1#name", "#2#name", ...
std::string entry_name(const std::string& tensor, std::set<std::string>* taken) {
  std::string name = tensor;
  for (int i = 1;
       (i == 1 && name.starts_with("#")) || name == kMetadataKey || !taken->insert(name).second;
       ++i) {
    name = "#" + std::to_string(i) + "#" + tensor;
  }
  return name;
}

Result<std::string_view> entry_tensor(std::string_view name) {
  if (!name.starts_with("#")) return name;
  const size_t end = name.find('#', 1);
  uint64_t number;
  if (end == std::string_view::npos || !parse_number(name.substr(1, end - 1), &number)) {
    return corruption("entry " + quote(name) + ": expected #number#name");
  }
  return name.substr(end + 1);
}

// The checksum of a part covers: every other piece of metadata, every payload's name and digest.
class PartCheck {
 public:
  void add_payload(std::string_view name, const Digest& digest) {
    add(name);
    add(digest.hex());
  }
  Digest finish() { return hasher_.finish(); }

  void add(std::string_view text) {  // with its length: no two lists of texts look alike
    hasher_.update(std::to_string(text.size()) + ":");
    hasher_.update(text);
  }

 private:
  Hasher hasher_{DigestKind::kXxh3_128};
};

Result<std::string_view> required(const Metadata& metadata, std::string_view key) {
  const std::string* value = find_metadata(metadata, key);
  if (value == nullptr) return corruption("metadata lacks " + quote(key));
  return std::string_view(*value);
}

// "delta/1 sum128 base target check"; the check comes back separately.
Result<DeltaInfo> parse_info(const Metadata& metadata, Digest* check) {
  const std::string* text = find_metadata(metadata, kPartKey);
  if (text == nullptr) {
    return invalid_argument("not a deltawire delta: its metadata has no " + quote(kPartKey));
  }
  const auto fields = split_text(*text, ' ');
  if (fields[0] == "whole/1") {
    return invalid_argument("a packed file of a store, not a delta: `deltawire pull` makes a " +
                            std::string("checkpoint of it"));
  }
  if (fields[0] != kDeltaFormat) {
    return unsupported("format " + quote(fields[0]) + "; this build reads " + quote(kDeltaFormat));
  }
  if (fields.size() != 5)
    return corruption(std::string(kPartKey) + ": expected 5 fields, got " +
                      std::to_string(fields.size()));
  DeltaInfo info;
  if (fields[1] != digest_name(DigestKind::kSum128)) {
    return unsupported("digest " + quote(fields[1]));
  }
  DW_ASSIGN_OR_RETURN(info.base, parse_digest(DigestKind::kXxh3_128, fields[2]));
  if (fields[3] != kNoTarget) {
    DW_ASSIGN_OR_RETURN(info.target, parse_digest(DigestKind::kXxh3_128, fields[3]));
  }
  DW_ASSIGN_OR_RETURN(*check, parse_digest(DigestKind::kXxh3_128, fields[4]));
  if (const std::string* removed = find_metadata(metadata, kRemovedKey)) {
    const auto json = parse_json(*removed);
    if (!json.is_array()) return corruption(std::string(kRemovedKey) + " is not a list of names");
    for (const auto& name : json) {
      if (!name.is_string())
        return corruption(std::string(kRemovedKey) + " is not a list of names");
      info.removed.push_back(name.get<std::string>());
    }
  }
  return info;
}

std::string part_text(const DeltaInfo& info) {
  return std::string(kDeltaFormat) + " " + std::string(digest_name(DigestKind::kSum128)) + " " +
         info.base.hex() + " " + (info.has_target() ? info.target.hex() : std::string(kNoTarget));
}

}  // namespace

uint64_t DeltaEntry::box_bytes() const {
  return tensor_size_bytes(dtype, box_shape(box, shape)).value();  // checked when it was made
}

Layout DeltaEntry::layout() const { return layout_of(dtype, box_shape(box, shape)); }

uint64_t DeltaEntry::num_elements() const { return box_bytes() / layout_of(dtype).width; }

std::string format_entry(const DeltaEntry& entry) {
  std::string text(find_codec(entry.codec)->name());
  text += " " + std::string(dtype_name(entry.dtype));
  text += " " + (entry.shape.empty() ? "-" : join_numbers(entry.shape));
  text += " " + (entry.box.whole() ? "-" : box_to_string(entry.box));
  text += " " + std::to_string(entry.num_changed);
  text += " " + (entry.old_digest ? entry.old_digest->hex() : "-");
  text += " " + entry.new_digest.hex();
  return text;
}

Result<DeltaEntry> parse_entry(std::string_view entry_name, std::string_view text) {
  DW_ASSIGN_OR_RETURN(const std::string_view tensor, entry_tensor(entry_name));
  const auto fields = split_text(text, ' ');
  if (fields.size() != 7) return bad_record(entry_name, "expected 7 fields", text);
  DeltaEntry entry;
  entry.tensor = tensor;
  const Codec* codec = find_codec(fields[0]);
  if (codec == nullptr)
    return unsupported("entry " + quote(entry_name) + ": codec " + quote(fields[0]));
  entry.codec = codec->id();
  const auto dtype = parse_dtype(fields[1]);
  if (!dtype) return unsupported("entry " + quote(entry_name) + ": dtype " + quote(fields[1]));
  entry.dtype = *dtype;
  const bool scalar = fields[2] == "-" || fields[2].empty();
  if (!scalar && !split_numbers(fields[2], &entry.shape, kMaxRank)) {
    return bad_record(entry_name, "expected a shape", fields[2]);
  }
  if (!tensor_size_bytes(entry.dtype, entry.shape).ok()) {
    return bad_record(entry_name, "expected a shape that fits in memory", fields[2]);
  }
  if (fields[3] != "-") {
    DW_ASSIGN_OR_RETURN(entry.box, parse_box(fields[3]));
    const Status status = check_box(entry.box, entry.dtype, entry.shape);
    if (!status.ok()) return bad_record(entry_name, status.message(), fields[3]);
  }
  if (!parse_number(fields[4], &entry.num_changed) || entry.num_changed > entry.num_elements()) {
    return bad_record(entry_name,
                      "expected at most " + std::to_string(entry.num_elements()) + " changes",
                      fields[4]);
  }
  if (fields[5] != "-") {
    DW_ASSIGN_OR_RETURN(entry.old_digest, parse_digest(DigestKind::kSum128, fields[5]));
  }
  DW_ASSIGN_OR_RETURN(entry.new_digest, parse_digest(DigestKind::kSum128, fields[6]));
  const bool holds_all = entry.codec == CodecId::kRaw || entry.codec == CodecId::kExponents;
  if (!entry.old_digest && (!holds_all || !entry.box.whole())) {
    return bad_record(entry_name,
                      "an entry without an old digest is a whole tensor, raw or in exponents",
                      codec->name());
  }
  return entry;
}

Result<std::string> serialise_part_header(const DeltaInfo& info,
                                          const std::vector<EntryRecord>& entries) {
  std::vector<TensorSpec> specs;
  std::set<std::string> taken;
  std::string records;
  for (const EntryRecord& record : entries) {
    specs.push_back({entry_name(record.entry.tensor, &taken), DType::kU8, {record.payload_bytes}});
    if (!records.empty()) records.push_back(';');
    records += format_entry(record.entry);
  }
  const std::string removed = info.removed.empty() ? "" : json_text(nlohmann::json(info.removed));
  PartCheck check;
  check.add(part_text(info));
  check.add(records);
  check.add(removed);
  for (size_t i = 0; i < entries.size(); ++i)
    check.add_payload(specs[i].name, entries[i].payload_digest);
  Metadata metadata = {{std::string(kPartKey), part_text(info) + " " + check.finish().hex()},
                       {std::string(kEntriesKey), records}};
  if (!removed.empty()) metadata.emplace_back(std::string(kRemovedKey), removed);
  return serialise_safetensors_header(specs, metadata);
}

Result<DeltaPart> parse_part(Bytes file, PartContents contents) {
  DW_ASSIGN_OR_RETURN(const SafetensorsView view, parse_safetensors(file));
  DeltaPart part;
  Digest expected;
  DW_ASSIGN_OR_RETURN(part.info, parse_info(view.metadata, &expected));
  DW_ASSIGN_OR_RETURN(const std::string_view records, required(view.metadata, kEntriesKey));
  const std::string* removed = find_metadata(view.metadata, kRemovedKey);
  if (contents == PartContents::kAll) {
    PartCheck check;
    check.add(part_text(part.info));
    check.add(records);
    check.add(removed == nullptr ? "" : *removed);
    for (const TensorView& tensor : view.tensors) {
      check.add_payload(tensor.name, digest_of(DigestKind::kXxh3_128, tensor.bytes));
    }
    const Digest got = check.finish();
    if (got != expected) {
      return corruption("checksum of the part: expected " + expected.hex() + ", got " + got.hex());
    }
  }
  if (view.metadata.size() != (removed == nullptr ? 2 : 3))
    return corruption("metadata has unknown keys");
  const auto texts = records.empty() ? std::vector<std::string_view>() : split_text(records, ';');
  if (texts.size() != view.tensors.size()) {
    return corruption(std::string(kEntriesKey) + ": expected " +
                      std::to_string(view.tensors.size()) + " records, got " +
                      std::to_string(texts.size()));
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    const TensorView& tensor = view.tensors[i];
    if (tensor.dtype != DType::kU8 || tensor.shape.size() != 1) {
      return corruption("tensor " + quote(tensor.name) + ": a payload is a U8 vector");
    }
    DW_ASSIGN_OR_RETURN(DeltaEntry entry, parse_entry(tensor.name, texts[i]));
    if (entry.codec == CodecId::kRaw && tensor.bytes.size() != entry.box_bytes()) {
      return corruption("tensor " + quote(tensor.name) + ": raw payload: expected " +
                        std::to_string(entry.box_bytes()) + " bytes, got " +
                        std::to_string(tensor.bytes.size()));
    }
    // Prevents a small payload from making the reader allocate much memory; `exponents` saves a
    // third at most.
    if (!entry.old_digest && entry.box_bytes() / 2 > tensor.bytes.size()) {
      return corruption("tensor " + quote(tensor.name) + ": a payload of " +
                        std::to_string(tensor.bytes.size()) + " bytes for " +
                        std::to_string(entry.box_bytes()));
    }
    part.entries.push_back({std::move(entry), tensor.bytes});
  }
  return part;
}

Result<std::vector<EntryRecord>> parse_part_header(std::string_view header, uint64_t part_bytes) {
  if (header.size() < sizeof(uint64_t) || part_bytes < header.size()) {
    return corruption("the header is cut off");
  }
  DW_ASSIGN_OR_RETURN(
      const SafetensorsHeader view,
      parse_safetensors_header(header.substr(sizeof(uint64_t)), part_bytes - header.size()));
  DW_ASSIGN_OR_RETURN(const std::string_view records, required(view.metadata, kEntriesKey));
  const auto texts = records.empty() ? std::vector<std::string_view>() : split_text(records, ';');
  if (texts.size() != view.entries.size()) {
    return corruption(std::string(kEntriesKey) + ": expected one record for each tensor");
  }
  std::vector<EntryRecord> entries;
  for (size_t i = 0; i < texts.size(); ++i) {
    const TensorEntry& tensor = view.entries[i];
    DW_ASSIGN_OR_RETURN(DeltaEntry entry, parse_entry(tensor.spec.name, texts[i]));
    entries.push_back({std::move(entry), tensor.end - tensor.begin, {}});
  }
  return entries;
}

namespace {

Result<std::string> string_at(const nlohmann::json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_string())
    return corruption("index: \"" + std::string(key) + "\" must be a string");
  return it->get<std::string>();
}

Result<Digest> digest_at(const nlohmann::json& object, const char* key, DigestKind kind) {
  DW_ASSIGN_OR_RETURN(const std::string hex, string_at(object, key));
  return parse_digest(kind, hex);
}

}  // namespace

std::string part_name(size_t number) {
  std::string digits = std::to_string(number);
  return "part-" + std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits +
         ".safetensors";
}

std::string serialise_delta_index(const DeltaIndex& index) {
  nlohmann::ordered_json json = {{"format", kDeltaFormat},
                                 {"base", index.base.hex()},
                                 {"target", index.target.hex()},
                                 {"parts", nlohmann::ordered_json::array()}};
  for (const DeltaIndexPart& part : index.parts) {
    json["parts"].push_back(
        {{"name", part.name}, {"bytes", part.size_bytes}, {"sha-256", part.sha256.hex()}});
  }
  return json_text(json, {.indent = 2}) + "\n";
}

Result<DeltaIndex> parse_delta_index(std::string_view text) {
  const auto json = parse_json(text);
  if (!json.is_object()) return corruption("index: not a JSON object");
  DW_ASSIGN_OR_RETURN(const std::string format, string_at(json, "format"));
  if (format != kDeltaFormat) return unsupported("index: format " + quote(format));
  DeltaIndex index;
  DW_ASSIGN_OR_RETURN(index.base, digest_at(json, "base", DigestKind::kXxh3_128));
  DW_ASSIGN_OR_RETURN(index.target, digest_at(json, "target", DigestKind::kXxh3_128));
  const auto parts = json.find("parts");
  if (parts == json.end() || !parts->is_array())
    return corruption("index: \"parts\" must be a list");
  for (const auto& item : *parts) {
    if (!item.is_object()) return corruption("index: a part must be an object");
    DeltaIndexPart part;
    DW_ASSIGN_OR_RETURN(part.name, string_at(item, "name"));
    // Only names that we write: none can leave the folder.
    if (part.name != part_name(index.parts.size())) {
      return corruption("index: part name: expected " + quote(part_name(index.parts.size())) +
                        ", got " + quote(part.name));
    }
    const auto bytes = item.find("bytes");
    if (bytes == item.end() || !bytes->is_number_unsigned())
      return corruption("index: \"bytes\" must be a count");
    part.size_bytes = bytes->get<uint64_t>();
    DW_ASSIGN_OR_RETURN(part.sha256, digest_at(item, "sha-256", DigestKind::kSha256));
    index.parts.push_back(std::move(part));
  }
  return index;
}

}  // namespace deltawire

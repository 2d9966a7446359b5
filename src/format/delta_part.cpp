#include "format/delta_part.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "format/layout.h"
#include "tensor/safetensors.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

// Keys of the part itself; everything else in the metadata is the record of an entry.
constexpr std::string_view kReserved = "deltawire.";
constexpr std::string_view kFormatKey = "deltawire.format";
constexpr std::string_view kDigestKey = "deltawire.digest";
constexpr std::string_view kBaseKey = "deltawire.base";
constexpr std::string_view kTargetKey = "deltawire.target";
constexpr std::string_view kRemovedKey = "deltawire.removed";
constexpr std::string_view kCheckKey = "deltawire.check";

std::string join(const Shape& shape) {
  std::string text;
  for (const uint64_t extent : shape) {
    if (!text.empty()) text.push_back(',');
    text += std::to_string(extent);
  }
  return text;
}

bool parse_number(std::string_view text, uint64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

bool parse_shape(std::string_view text, Shape* shape) {
  if (text.empty()) return true;  // a scalar
  while (true) {
    const size_t comma = text.find(',');
    uint64_t extent;
    if (!parse_number(text.substr(0, comma), &extent) || shape->size() == kMaxRank) return false;
    shape->push_back(extent);
    if (comma == std::string_view::npos) return true;
    text.remove_prefix(comma + 1);
  }
}

// Takes "key=value" off the front when the next field has this key.
bool take_field(std::string_view* text, std::string_view key, std::string_view* value) {
  if (text->size() <= key.size() || text->substr(0, key.size()) != key ||
      (*text)[key.size()] != '=') {
    return false;
  }
  text->remove_prefix(key.size() + 1);
  const size_t space = text->find(' ');
  *value = text->substr(0, space);
  text->remove_prefix(space == std::string_view::npos ? text->size() : space + 1);
  return true;
}

Status bad_record(std::string_view name, std::string_view what, std::string_view got) {
  return corruption("entry " + quote(name) + ": " + std::string(what) + ", got " + quote(got));
}

// Unique within the part, never one of our own keys.
std::string entry_name(const std::string& tensor, std::set<std::string>* taken) {
  std::string name = tensor;
  for (int i = 1;
       name.starts_with(kReserved) || name == kMetadataKey || !taken->insert(name).second; ++i) {
    name = "#" + std::to_string(i) + "#" + tensor;
  }
  return name;
}

// What the checksum of a part covers: every other piece of metadata, every payload's name and
// digest.
class PartCheck {
 public:
  void add_metadata(std::string_view key, std::string_view value) {
    if (key == kCheckKey) return;
    add(key);
    add(value);
  }
  void add_payload(std::string_view name, const Digest& digest) {
    add(name);
    add(digest.hex());
  }
  Digest finish() { return hasher_.finish(); }

 private:
  void add(std::string_view text) {  // with its length: no two lists of texts look alike
    hasher_.update(std::to_string(text.size()) + ":");
    hasher_.update(text);
  }
  Hasher hasher_{DigestKind::kXxh3_128};
};

Result<std::string_view> required(const Metadata& metadata, std::string_view key) {
  const std::string* value = find_metadata(metadata, key);
  if (value == nullptr) return corruption("metadata lacks " + quote(key));
  return std::string_view(*value);
}

Result<DeltaInfo> parse_info(const Metadata& metadata) {
  const std::string* format = find_metadata(metadata, kFormatKey);
  if (format == nullptr) {
    return invalid_argument("not a deltawire delta: its metadata has no " + quote(kFormatKey));
  }
  if (*format != kDeltaFormat) {
    return unsupported("format " + quote(*format) + "; this build reads " + quote(kDeltaFormat));
  }
  DeltaInfo info;
  DW_ASSIGN_OR_RETURN(const std::string_view kind_name, required(metadata, kDigestKey));
  const auto kind = parse_digest_kind(kind_name);
  if (!kind) return unsupported("digest " + quote(kind_name));
  info.digest_kind = *kind;
  if (!digest_available(*kind)) return unsupported("this build has no " + std::string(kind_name));
  DW_ASSIGN_OR_RETURN(const std::string_view base, required(metadata, kBaseKey));
  DW_ASSIGN_OR_RETURN(info.base, parse_digest(DigestKind::kXxh3_128, base));
  DW_ASSIGN_OR_RETURN(const std::string_view target, required(metadata, kTargetKey));
  DW_ASSIGN_OR_RETURN(info.target, parse_digest(DigestKind::kXxh3_128, target));
  if (const std::string* removed = find_metadata(metadata, kRemovedKey)) {
    const auto json = nlohmann::json::parse(*removed, nullptr, false);
    if (!json.is_array()) return corruption(std::string(kRemovedKey) + " is not a list of names");
    for (const auto& name : json) {
      if (!name.is_string())
        return corruption(std::string(kRemovedKey) + " is not a list of names");
      info.removed.push_back(name.get<std::string>());
    }
  }
  return info;
}

}  // namespace

uint64_t DeltaEntry::box_bytes() const {
  return tensor_size_bytes(dtype, box_shape(box, shape)).value();  // checked when it was made
}

uint64_t DeltaEntry::num_elements() const { return box_bytes() / layout_of(dtype).width; }

std::string format_entry(const DeltaEntry& entry, bool with_name) {
  std::string text = "codec=";
  text += find_codec(entry.codec)->name();
  text += " dtype=";
  text += dtype_name(entry.dtype);
  text += " shape=" + join(entry.shape);
  if (!entry.box.whole()) text += " box=" + box_to_string(entry.box);
  text += " changed=" + std::to_string(entry.num_changed);
  if (entry.old_digest) text += " old=" + entry.old_digest->hex();
  text += " new=" + entry.new_digest.hex();
  if (with_name) text += " name=" + entry.tensor;
  return text;
}

Result<DeltaEntry> parse_entry(std::string_view name, std::string_view text,
                               DigestKind digest_kind) {
  DeltaEntry entry;
  std::string_view value;
  if (!take_field(&text, "codec", &value)) return bad_record(name, "expected codec=", text);
  const Codec* codec = find_codec(value);
  if (codec == nullptr) return unsupported("entry " + quote(name) + ": codec " + quote(value));
  entry.codec = codec->id();
  if (!take_field(&text, "dtype", &value)) return bad_record(name, "expected dtype=", text);
  const auto dtype = parse_dtype(value);
  if (!dtype) return unsupported("entry " + quote(name) + ": dtype " + quote(value));
  entry.dtype = *dtype;
  if (!take_field(&text, "shape", &value)) return bad_record(name, "expected shape=", text);
  if (!parse_shape(value, &entry.shape)) return bad_record(name, "expected a shape", value);
  auto size = tensor_size_bytes(entry.dtype, entry.shape);
  if (!size.ok()) return bad_record(name, "expected a shape that fits in memory", value);
  if (take_field(&text, "box", &value)) {
    DW_ASSIGN_OR_RETURN(entry.box, parse_box(value));
    const Status status = check_box(entry.box, entry.dtype, entry.shape);
    if (!status.ok()) return bad_record(name, status.message(), value);
  }
  if (!take_field(&text, "changed", &value)) return bad_record(name, "expected changed=", text);
  if (!parse_number(value, &entry.num_changed) || entry.num_changed > entry.num_elements()) {
    return bad_record(name, "expected at most " + std::to_string(entry.num_elements()) + " changes",
                      value);
  }
  if (take_field(&text, "old", &value)) {
    DW_ASSIGN_OR_RETURN(entry.old_digest, parse_digest(digest_kind, value));
  }
  if (!take_field(&text, "new", &value)) return bad_record(name, "expected new=", text);
  DW_ASSIGN_OR_RETURN(entry.new_digest, parse_digest(digest_kind, value));
  entry.tensor = name;
  if (text.starts_with("name=")) {  // to the end: a name may hold anything
    entry.tensor = text.substr(5);
  } else if (!text.empty()) {
    return bad_record(name, "expected the end of its record", text);
  }
  if (!entry.old_digest && (entry.codec != CodecId::kRaw || !entry.box.whole())) {
    return bad_record(name, "an entry without an old digest is a whole raw tensor", codec->name());
  }
  return entry;
}

Result<std::string> serialise_part_header(const DeltaInfo& info,
                                          const std::vector<EntryRecord>& entries) {
  Metadata metadata = {{std::string(kFormatKey), std::string(kDeltaFormat)},
                       {std::string(kDigestKey), std::string(digest_name(info.digest_kind))},
                       {std::string(kBaseKey), info.base.hex()},
                       {std::string(kTargetKey), info.target.hex()}};
  if (!info.removed.empty()) {
    metadata.emplace_back(std::string(kRemovedKey), nlohmann::json(info.removed).dump());
  }
  std::vector<TensorSpec> specs;
  std::set<std::string> taken;
  for (const EntryRecord& record : entries) {
    const std::string name = entry_name(record.entry.tensor, &taken);
    specs.push_back({name, DType::kU8, {record.payload_bytes}});
    metadata.emplace_back(name, format_entry(record.entry, name != record.entry.tensor));
  }
  PartCheck check;
  for (const auto& [key, value] : metadata) check.add_metadata(key, value);
  for (size_t i = 0; i < entries.size(); ++i)
    check.add_payload(specs[i].name, entries[i].payload_digest);
  metadata.emplace_back(std::string(kCheckKey), check.finish().hex());
  return serialise_safetensors_header(specs, metadata);
}

Result<DeltaPart> parse_part(Bytes file) {
  DW_ASSIGN_OR_RETURN(const SafetensorsView view, parse_safetensors(file));
  DeltaPart part;
  DW_ASSIGN_OR_RETURN(part.info, parse_info(view.metadata));
  DW_ASSIGN_OR_RETURN(const std::string_view check, required(view.metadata, kCheckKey));
  DW_ASSIGN_OR_RETURN(const Digest expected, parse_digest(DigestKind::kXxh3_128, check));
  PartCheck part_check;
  for (const auto& [key, value] : view.metadata) part_check.add_metadata(key, value);
  for (const TensorView& tensor : view.tensors) {
    part_check.add_payload(tensor.name, digest_of(DigestKind::kXxh3_128, tensor.bytes));
  }
  const Digest got = part_check.finish();
  if (got != expected) {
    return corruption("checksum of the part: expected " + expected.hex() + ", got " + got.hex());
  }
  std::unordered_map<std::string_view, std::string_view> records;
  for (const auto& [key, value] : view.metadata) {
    if (!key.starts_with(kReserved)) records.emplace(key, value);
  }
  for (const TensorView& tensor : view.tensors) {
    const auto record = records.find(tensor.name);
    if (record == records.end())
      return corruption("tensor " + quote(tensor.name) + " has no record in the metadata");
    if (tensor.dtype != DType::kU8 || tensor.shape.size() != 1) {
      return corruption("tensor " + quote(tensor.name) + ": a payload is a U8 vector");
    }
    DW_ASSIGN_OR_RETURN(DeltaEntry entry,
                        parse_entry(tensor.name, record->second, part.info.digest_kind));
    if (entry.codec == CodecId::kRaw && tensor.bytes.size() != entry.box_bytes()) {
      return corruption("tensor " + quote(tensor.name) + ": raw payload: expected " +
                        std::to_string(entry.box_bytes()) + " bytes, got " +
                        std::to_string(tensor.bytes.size()));
    }
    part.entries.push_back({std::move(entry), tensor.bytes});
    records.erase(record);
  }
  if (!records.empty()) {
    return corruption("metadata describes " + quote(records.begin()->first) +
                      ", which has no payload");
  }
  return part;
}

}  // namespace deltawire

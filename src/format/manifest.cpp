#include "format/manifest.h"

#include <algorithm>

#include "base/text.h"
#include "format/checkpoint_files.h"
#include "format/tensor_digest.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

constexpr std::string_view kManifestFormat = "manifest/1";
constexpr std::string_view kHopFormat = "hop/1";

std::string part_json(const PartRef& part) {
  return "{\"bytes\":" + std::to_string(part.size_bytes) +
         ",\"name\":" + canonical_text(part.name) + ",\"sha-256\":\"" + part.sha256.hex() + "\"}";
}

std::string parts_json(const std::vector<PartRef>& parts) {
  std::string list;
  for (const PartRef& part : parts) list.append(list.empty() ? "" : ",").append(part_json(part));
  return "[" + list + "]";
}

Result<PartRef> parse_part_ref(std::string_view json) {
  RecordReader fields = RecordReader::inside(json);
  PartRef part{fields.text("name"), fields.number("bytes"),
               fields.digest("sha-256", DigestKind::kSha256)};
  DW_RETURN_IF_ERROR(Status(fields.status()));
  return part;
}

// The sum of sizes must not overflow, because plans compare sums.
Result<std::vector<PartRef>> parse_parts(std::string_view json) {
  constexpr uint64_t kLimit = uint64_t{1} << 56;
  std::vector<PartRef> parts;
  uint64_t sum = 0;
  CanonicalReader reader(json);
  for (reader.open_list(); reader.next_item();) {
    DW_ASSIGN_OR_RETURN(PartRef part, located(parse_part_ref(reader.skip()), "parts"));
    if (part.size_bytes > kLimit - sum) return bad_field("parts", "sizes that add up");
    sum += part.size_bytes;
    parts.push_back(std::move(part));
  }
  if (!reader.ok()) return bad_field("parts", "a list");
  return parts;
}

std::string files_json(const std::vector<SideFile>& files) {
  std::string list;
  for (const SideFile& file : files) {
    list.append(list.empty() ? "[" : ",[").append(canonical_text(file.name));
    list.append(",").append(std::to_string(file.size_bytes)).append(",\"");
    list.append(file.sha256.hex()).append("\",").append(canonical_text(file.attempt)).append("]");
  }
  return "[" + list + "]";
}

// ["name", bytes, "sha-256", "attempt"]
Result<SideFile> read_side_file(CanonicalReader* reader) {
  SideFile file;
  reader->open_list();
  file.name = reader->item().text();
  file.size_bytes = reader->item().number();
  const std::string_view sha256 = reader->item().word();
  file.attempt = reader->item().word();
  reader->close_list();
  if (!reader->ok()) return bad_field("files", "name, bytes, sha-256 and attempt of each");
  DW_ASSIGN_OR_RETURN(file.sha256, parse_digest(DigestKind::kSha256, sha256));
  return file;
}

// Replicas write these files into a folder, so their names must be allowed there.
Result<std::vector<SideFile>> parse_files(std::string_view json) {
  std::vector<SideFile> files;
  std::vector<NamedSize> sizes;
  CanonicalReader reader(json);
  for (reader.open_list(); reader.next_item();) {
    DW_ASSIGN_OR_RETURN(SideFile file, read_side_file(&reader));
    if (!files.empty() && files.back().name >= file.name) {
      return bad_field("files", "names in ascending order");
    }
    sizes.push_back({file.name, file.size_bytes});
    files.push_back(std::move(file));
  }
  if (!reader.ok()) return bad_field("files", "a list");
  DW_RETURN_IF_ERROR(check_side_files(sizes));
  return files;
}

uint64_t sum_of(const std::vector<PartRef>& parts) {
  uint64_t sum = 0;
  for (const PartRef& part : parts) sum += part.size_bytes;
  return sum;
}

using Boxes = std::map<std::string, std::vector<BoxDigest>>;

std::string boxes_json(const Boxes& boxes) {
  std::string json;
  for (const auto& [tensor, list] : boxes) {
    std::string pairs;
    for (const BoxDigest& box : list) {
      pairs.append(pairs.empty() ? "" : ",").append("[\"").append(box_to_string(box.box));
      pairs.append("\",\"").append(box.digest.hex());
      if (box.sums) pairs.append("\",\"").append(box.sums->to_string());
      pairs.append("\"]");
    }
    json.append(json.empty() ? "" : ",").append(canonical_text(tensor));
    json.append(":[").append(pairs).append("]");
  }
  return "{" + json + "}";
}

// ["box", "digest"] or ["box", "digest", "sums"]
Result<BoxDigest> read_box(CanonicalReader* reader) {
  reader->open_list();
  const std::string_view box = reader->item().word(), digest = reader->item().word();
  std::optional<std::string_view> sums;
  if (reader->next_item()) {
    sums = reader->word();
    reader->close_list();
  }
  if (!reader->ok()) return bad_field("boxes", "box, digest and, where given, sums of each");
  BoxDigest result;
  if (sums) {
    DW_ASSIGN_OR_RETURN(result.sums, Sums::parse(*sums));
  }
  DW_ASSIGN_OR_RETURN(result.box, parse_box(box));
  DW_ASSIGN_OR_RETURN(result.digest, parse_digest(DigestKind::kSum128, digest));
  return result;
}

Result<Boxes> parse_boxes(std::string_view json) {
  Boxes boxes;
  CanonicalReader reader(json);
  std::string tensor;
  for (reader.open_object(); reader.next_member(&tensor);) {
    std::vector<BoxDigest>& list = boxes[tensor];
    for (reader.open_list(); reader.next_item();) {
      DW_ASSIGN_OR_RETURN(BoxDigest box, read_box(&reader));
      list.push_back(std::move(box));
    }
    if (list.empty()) return bad_field("boxes", "a list of boxes per tensor");
    for (const BoxDigest& box : list) {
      if (box.sums.has_value() == list[0].sums.has_value()) continue;
      return bad_field("boxes", "sums of all boxes of a tensor, or of none");
    }
  }
  if (!reader.ok()) return bad_field("boxes", "lists of boxes by tensor");
  return boxes;
}

// Checks relations between the fields of a manifest.
Status check_manifest(const Manifest& m) {
  if (m.base.has_value() != (m.kind == VersionKind::kDelta) || (m.base && *m.base >= m.version)) {
    return bad_field("base", "an older version for a delta, none for a full one");
  }
  if (m.parent.has_value() != (m.version != 0)) {
    return bad_field("parent", "one, but for version 0");
  }
  if (m.anchor > m.version) return bad_field("anchor", "a version up to this one");
  if (m.chain_bytes >= uint64_t{1} << 56 || m.chain_bytes < m.part_bytes()) {
    return bad_field("chain_bytes", "at least the bytes of the parts, under 2^56");
  }
  return {};
}

}  // namespace

uint64_t Manifest::part_bytes() const { return sum_of(parts); }
uint64_t HopRecord::part_bytes() const { return sum_of(parts); }

Result<std::string> serialise_manifest(const Manifest& m, const Signer& sign) {
  RecordWriter record(kManifestFormat);
  record.text("run", m.run);
  record.number("version", m.version);
  record.number("base", m.base);
  record.digest("parent", m.parent);
  record.text("kind", m.kind == VersionKind::kFull ? "full" : "delta");
  record.text("created", m.created);
  record.text("publisher", m.publisher);
  record.json("parts", parts_json(m.parts));
  record.json("files", files_json(m.files));
  record.json("schema", part_json(m.schema));
  record.text("digest", digest_name(DigestKind::kSum128));
  record.json("digests", "\"" + join_digests(m.digests) + "\"");
  record.digest("state", m.state);
  record.number("chain_bytes", m.chain_bytes);
  record.number("anchor", m.anchor);
  record.number("anchor_bytes", m.anchor_bytes);
  record.number("elements", m.elements);
  record.number("changed", m.changed);
  record.number("milliseconds", m.milliseconds);
  record.text("codec", m.codec);
  if (!m.reason.empty()) record.text("reason", m.reason);
  if (!m.quantization.empty()) record.text("quantization", m.quantization);
  if (!m.origin.empty()) record.text("origin", m.origin);
  if (!m.boxes.empty()) record.json("boxes", boxes_json(m.boxes));
  return std::move(record).finish(sign);
}

Result<Manifest> parse_manifest(std::string_view text, const Verifier& trust) {
  DW_ASSIGN_OR_RETURN(RecordReader fields, RecordReader::open(text, kManifestFormat, trust));
  Manifest m;
  m.run = fields.run();
  m.version = fields.number("version");
  m.base = fields.optional_number("base");
  m.parent = fields.optional_digest("parent", DigestKind::kSha256);
  const std::string kind = fields.text("kind"), digest = fields.text("digest");
  if (fields.has("reason")) m.reason = fields.text("reason");
  if (fields.has("quantization")) m.quantization = fields.text("quantization");
  if (fields.has("origin")) m.origin = fields.text("origin");
  m.created = fields.text("created");
  m.publisher = fields.text("publisher");
  m.state = fields.digest("state", DigestKind::kXxh3_128);
  m.chain_bytes = fields.number("chain_bytes");
  m.anchor = fields.number("anchor");
  m.anchor_bytes = fields.number("anchor_bytes");
  m.elements = fields.number("elements");
  m.changed = fields.number("changed");
  m.milliseconds = fields.number("milliseconds");
  m.codec = fields.text("codec");
  m.signed_by = fields.signed_by();
  const std::string_view digests = fields.word("digests");
  DW_RETURN_IF_ERROR(Status(fields.status()));
  DW_ASSIGN_OR_RETURN(m.parts, parse_parts(fields.json("parts")));
  DW_ASSIGN_OR_RETURN(m.files, parse_files(fields.json("files")));
  DW_ASSIGN_OR_RETURN(m.schema, parse_part_ref(fields.json("schema")));
  if (digest != digest_name(DigestKind::kSum128)) return unsupported("digest " + quote(digest));
  DW_ASSIGN_OR_RETURN(m.digests, split_digests("digests", DigestKind::kSum128, digests));
  if (fields.has("boxes")) {
    DW_ASSIGN_OR_RETURN(m.boxes, parse_boxes(fields.json("boxes")));
  }
  if (kind != "full" && kind != "delta") return bad_field("kind", "full or delta");
  m.kind = kind == "full" ? VersionKind::kFull : VersionKind::kDelta;
  DW_RETURN_IF_ERROR(check_manifest(m));
  return m;
}

Result<std::string> serialise_hop(const HopRecord& e, const Signer& sign) {
  RecordWriter record(kHopFormat);
  record.text("run", e.run);
  record.number("version", e.version);
  record.number("base", e.base);
  record.digest("manifest", e.manifest);
  record.digest("base_manifest", e.base_manifest);
  record.text("created", e.created);
  record.json("parts", parts_json(e.parts));
  return std::move(record).finish(sign);
}

Result<HopRecord> parse_hop(std::string_view text, const Verifier& trust) {
  DW_ASSIGN_OR_RETURN(RecordReader fields, RecordReader::open(text, kHopFormat, trust));
  HopRecord e;
  e.run = fields.run();
  e.version = fields.number("version");
  e.base = fields.optional_number("base");
  e.manifest = fields.digest("manifest", DigestKind::kSha256);
  e.base_manifest = fields.optional_digest("base_manifest", DigestKind::kSha256);
  e.created = fields.text("created");
  e.signed_by = fields.signed_by();
  DW_RETURN_IF_ERROR(Status(fields.status()));
  DW_ASSIGN_OR_RETURN(e.parts, parse_parts(fields.json("parts")));
  if (e.base.has_value() != e.base_manifest.has_value() || (e.base && *e.base >= e.version)) {
    return bad_field("base", "an older version and its manifest, or neither");
  }
  return e;
}

const std::vector<BoxDigest>* boxes_hashed(const Manifest& manifest, const std::string& tensor) {
  const auto found = manifest.boxes.find(tensor);
  return found == manifest.boxes.end() || found->second[0].sums ? nullptr : &found->second;
}

Result<Digest> boxes_digest(const std::vector<BoxDigest>& boxes, uint64_t size_bytes) {
  if (boxes[0].sums) {
    std::vector<Sums> sums;
    for (const BoxDigest& box : boxes) sums.push_back(*box.sums);
    return added_up(std::move(sums)).finish(size_bytes);
  }
  std::vector<std::string> lines;
  for (const BoxDigest& box : boxes) {
    lines.push_back(box_to_string(box.box) + '\0' + box.digest.hex() + '\n');
  }
  std::sort(lines.begin(), lines.end());
  Hasher hasher(boxes.front().digest.kind);
  for (const std::string& line : lines) hasher.update(line);
  return hasher.finish();
}

Result<std::vector<TensorState>> states_of(const Schema& schema, const Manifest& manifest) {
  if (schema.tensors.size() != manifest.digests.size()) {
    return corruption("digests: expected " + std::to_string(schema.tensors.size()) +
                      " as the schema has tensors, got " + std::to_string(manifest.digests.size()));
  }
  std::vector<TensorState> states;
  for (size_t i = 0; i < schema.tensors.size(); ++i) {
    const TensorSpec& tensor = schema.tensors[i];
    states.push_back({tensor, manifest.digests[i]});
  }
  return states;
}

}  // namespace deltawire

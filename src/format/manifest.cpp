#include "format/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "format/base64.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

using Json = nlohmann::json;  // its objects are sorted by key: dump() is canonical

constexpr std::string_view kManifestFormat = "manifest/1";
constexpr std::string_view kEdgeFormat = "edge/1";
constexpr std::string_view kSchemaFormat = "schema/1";
constexpr size_t kRunDigits = 32;

Status bad(std::string_view field, std::string_view expected) {
  return corruption(quote(field) + ": expected " + std::string(expected));
}

// Reads fields one by one and remembers the first that is wrong: callers check once, at the end.
class Fields {
 public:
  explicit Fields(const Json& json) : json_(json) {}

  const Status& status() const { return status_; }
  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  bool has(const char* key) const { return json_.contains(key) && !json_.at(key).is_null(); }
  std::string text(const char* key) {
    if (has(key) && json_.at(key).is_string()) return json_.at(key).get<std::string>();
    fail(bad(key, "a text"));
    return {};
  }
  uint64_t number(const char* key) {
    if (has(key) && json_.at(key).is_number_unsigned()) return json_.at(key).get<uint64_t>();
    fail(bad(key, "a number"));
    return 0;
  }
  std::optional<uint64_t> optional_number(const char* key) {
    if (!has(key)) return {};
    return number(key);
  }
  Digest digest(const char* key, DigestKind kind) {
    Result<Digest> parsed = parse_digest(kind, text(key));
    if (parsed.ok()) return *parsed;
    fail(std::move(parsed).status().at(key));
    return {};
  }
  std::optional<Digest> optional_digest(const char* key, DigestKind kind) {
    if (!has(key)) return {};
    return digest(key, kind);
  }
  std::string run() {
    std::string run = text("run");
    const bool hex = std::all_of(run.begin(), run.end(), [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    });
    if (run.size() != kRunDigits || !hex) fail(bad("run", "32 hex digits"));
    return run;
  }
  PartRef part(const Json& json) {
    if (!json.is_object()) {
      fail(bad("parts", "objects with name, bytes and sha-256"));
      return {};
    }
    Fields fields(json);
    PartRef part{fields.text("name"), fields.number("bytes"),
                 fields.digest("sha-256", DigestKind::kSha256)};
    fail(fields.status());
    return part;
  }
  std::vector<PartRef> parts() {
    std::vector<PartRef> out;
    if (!has("parts") || !json_.at("parts").is_array()) {
      fail(bad("parts", "a list"));
      return out;
    }
    for (const Json& json : json_.at("parts")) out.push_back(part(json));
    return out;
  }

 private:
  const Json& json_;
  Status status_;
};

Json part_json(const PartRef& part) {
  return {{"name", part.name}, {"bytes", part.size_bytes}, {"sha-256", part.sha256.hex()}};
}

Json parts_json(const std::vector<PartRef>& parts) {
  Json list = Json::array();
  for (const PartRef& part : parts) list.push_back(part_json(part));
  return list;
}

template <class T>
Json optional_json(const std::optional<T>& value) {
  if (!value) return nullptr;
  if constexpr (std::is_same_v<T, Digest>) {
    return value->hex();
  } else {
    return *value;
  }
}

// The record's text, with a signature when there is a key to make one.
Result<std::string> finish(Json json, const Signer& sign) {
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (!sign) return text;
  DW_ASSIGN_OR_RETURN(const Signature signature, sign(text));
  json["signature"] = {{"key", signature.key}, {"ed25519", signature.bytes}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Parsed, canonical, of the right format and trusted; without its signature.
Result<Json> open_record(std::string_view text, std::string_view format, const Truster& trust) {
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return corruption("not a JSON object");
  Fields fields(json);
  const std::string got = fields.text("format");
  DW_RETURN_IF_ERROR(fields.status());
  if (got != format) {
    return unsupported("format " + quote(got) + "; this build reads " + quote(format));
  }
  if (json.dump(-1, ' ', false, Json::error_handler_t::replace) != text) {
    return corruption("not in canonical form");
  }
  std::optional<Signature> signature;
  if (json.contains("signature")) {
    const Json& own = json.at("signature");
    if (!own.is_object()) return bad("signature", "an object");
    Fields parts(own);
    signature = Signature{parts.text("key"), parts.text("ed25519")};
    DW_RETURN_IF_ERROR(parts.status());
    json.erase("signature");
  }
  if (trust) DW_RETURN_IF_ERROR(trust(json.dump(), signature));
  return json;
}

std::string_view kind_name(VersionKind kind) {
  return kind == VersionKind::kFull ? "full" : "delta";
}

uint64_t sum_of(const std::vector<PartRef>& parts) {
  uint64_t sum = 0;
  for (const PartRef& part : parts) sum += part.size_bytes;
  return sum;
}

// Sizes in a record must add up without wrapping: a plan compares sums of them.
Status check_sizes(const std::vector<PartRef>& parts) {
  constexpr uint64_t kLimit = uint64_t{1} << 56;
  uint64_t sum = 0;
  for (const PartRef& part : parts) {
    if (part.size_bytes > kLimit - sum) return bad("parts", "sizes that add up");
    sum += part.size_bytes;
  }
  return {};
}

Json boxes_json(const std::map<std::string, std::vector<BoxDigest>>& boxes) {
  Json json = Json::object();
  for (const auto& [tensor, list] : boxes) {
    for (const BoxDigest& box : list) {
      json[tensor].push_back({box_to_string(box.box), box.digest.hex()});
    }
  }
  return json;
}

Result<std::map<std::string, std::vector<BoxDigest>>> parse_boxes(const Json& json,
                                                                  DigestKind kind) {
  std::map<std::string, std::vector<BoxDigest>> out;
  if (!json.is_object()) return bad("boxes", "an object");
  for (const auto& [tensor, list] : json.items()) {
    if (!list.is_array() || list.empty()) return bad("boxes", "a list of boxes per tensor");
    for (const Json& pair : list) {
      if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
        return bad("boxes", "pairs of box and digest");
      }
      BoxDigest box;
      DW_ASSIGN_OR_RETURN(box.box, parse_box(pair[0].get<std::string>()));
      DW_ASSIGN_OR_RETURN(box.digest, parse_digest(kind, pair[1].get<std::string>()));
      out[tensor].push_back(std::move(box));
    }
  }
  return out;
}

std::string join_digests(const std::vector<Digest>& digests) {
  std::string bytes;
  for (const Digest& digest : digests) {
    bytes.append(reinterpret_cast<const char*>(digest.bytes.data()), digest.size);
  }
  return base64_encode(bytes);
}

Result<std::vector<Digest>> split_digests(std::string_view text, DigestKind kind) {
  const std::optional<std::string> bytes = base64_decode(text);
  const size_t size = digest_size(kind);
  if (!bytes || bytes->size() % size != 0) return bad("digests", "base64 of whole digests");
  std::vector<Digest> digests(bytes->size() / size);
  for (size_t i = 0; i < digests.size(); ++i) {
    digests[i].kind = kind;
    digests[i].size = uint8_t(size);
    std::copy_n(bytes->data() + i * size, size, digests[i].bytes.begin());
  }
  return digests;
}

}  // namespace

std::string serialise_schema(const Schema& schema) {
  Json tensors = Json::array();
  for (const Schema::Tensor& tensor : schema.tensors) {
    tensors.push_back({tensor.name, dtype_name(tensor.dtype), tensor.shape});
  }
  return Json{{"format", kSchemaFormat}, {"tensors", std::move(tensors)}}.dump();
}

Result<Schema> parse_schema(std::string_view text) {
  DW_ASSIGN_OR_RETURN(const Json json, open_record(text, kSchemaFormat, {}));
  if (!json.contains("tensors") || !json.at("tensors").is_array()) return bad("tensors", "a list");
  Schema schema;
  for (const Json& item : json.at("tensors")) {
    if (!item.is_array() || item.size() != 3 || !item[0].is_string() || !item[1].is_string() ||
        !item[2].is_array()) {
      return bad("tensors", "name, dtype and shape of each");
    }
    Schema::Tensor tensor;
    tensor.name = item[0].get<std::string>();
    const std::optional<DType> dtype = parse_dtype(item[1].get<std::string>());
    if (!dtype) return unsupported("dtype " + quote(item[1].get<std::string>()));
    tensor.dtype = *dtype;
    for (const Json& extent : item[2]) {
      if (!extent.is_number_unsigned()) return bad("tensors", "extents that are numbers");
      tensor.shape.push_back(extent.get<uint64_t>());
    }
    DW_RETURN_IF_ERROR(tensor_size_bytes(tensor.dtype, tensor.shape).status());
    if (!schema.tensors.empty() && schema.tensors.back().name >= tensor.name) {
      return bad("tensors", "names in ascending order");
    }
    schema.tensors.push_back(std::move(tensor));
  }
  return schema;
}

uint64_t Manifest::part_bytes() const { return sum_of(parts); }
uint64_t Edge::part_bytes() const { return sum_of(parts); }

Result<std::string> serialise_manifest(const Manifest& m, const Signer& sign) {
  Json json = {{"format", kManifestFormat},
               {"run", m.run},
               {"version", m.version},
               {"base", optional_json(m.base)},
               {"parent", optional_json(m.parent)},
               {"kind", kind_name(m.kind)},
               {"created", m.created},
               {"publisher", m.publisher},
               {"parts", parts_json(m.parts)},
               {"schema", part_json(m.schema)},
               {"digest", digest_name(m.digest_kind)},
               {"digests", join_digests(m.digests)},
               {"state", m.state.hex()},
               {"chain_bytes", m.chain_bytes},
               {"anchor", m.anchor},
               {"anchor_bytes", m.anchor_bytes},
               {"elements", m.elements},
               {"changed", m.changed},
               {"milliseconds", m.milliseconds},
               {"codec", m.codec}};
  if (!m.reason.empty()) json["reason"] = m.reason;
  if (!m.boxes.empty()) json["boxes"] = boxes_json(m.boxes);
  return finish(std::move(json), sign);
}

Result<Manifest> parse_manifest(std::string_view text, const Truster& trust) {
  DW_ASSIGN_OR_RETURN(const Json json, open_record(text, kManifestFormat, trust));
  Fields fields(json);
  Manifest m;
  m.run = fields.run();
  m.version = fields.number("version");
  m.base = fields.optional_number("base");
  m.parent = fields.optional_digest("parent", DigestKind::kSha256);
  const std::string kind = fields.text("kind");
  if (json.contains("reason")) m.reason = fields.text("reason");
  m.created = fields.text("created");
  m.publisher = fields.text("publisher");
  m.parts = fields.parts();
  m.schema = fields.part(json.contains("schema") ? json.at("schema") : Json());
  const std::optional<DigestKind> digest_kind = parse_digest_kind(fields.text("digest"));
  const std::string digests = fields.text("digests");
  m.state = fields.digest("state", DigestKind::kXxh3_128);
  m.chain_bytes = fields.number("chain_bytes");
  m.anchor = fields.number("anchor");
  m.anchor_bytes = fields.number("anchor_bytes");
  m.elements = fields.number("elements");
  m.changed = fields.number("changed");
  m.milliseconds = fields.number("milliseconds");
  m.codec = fields.text("codec");
  DW_RETURN_IF_ERROR(fields.status());
  if (!digest_kind) return unsupported("digest " + quote(fields.text("digest")));
  m.digest_kind = *digest_kind;
  DW_ASSIGN_OR_RETURN(m.digests, split_digests(digests, m.digest_kind));
  if (json.contains("boxes")) {
    DW_ASSIGN_OR_RETURN(m.boxes, parse_boxes(json.at("boxes"), m.digest_kind));
  }
  if (kind != "full" && kind != "delta") return bad("kind", "full or delta");
  m.kind = kind == "full" ? VersionKind::kFull : VersionKind::kDelta;
  DW_RETURN_IF_ERROR(check_sizes(m.parts));
  if (m.base.has_value() != (m.kind == VersionKind::kDelta) || (m.base && *m.base >= m.version)) {
    return bad("base", "an older version for a delta, none for a full one");
  }
  if (m.parent.has_value() != (m.version != 0)) return bad("parent", "one, but for version 0");
  if (m.anchor > m.version) return bad("anchor", "a version up to this one");
  return m;
}

Result<std::string> serialise_edge(const Edge& e, const Signer& sign) {
  return finish({{"format", kEdgeFormat},
                 {"run", e.run},
                 {"version", e.version},
                 {"base", optional_json(e.base)},
                 {"manifest", e.manifest.hex()},
                 {"base_manifest", optional_json(e.base_manifest)},
                 {"created", e.created},
                 {"parts", parts_json(e.parts)}},
                sign);
}

Result<Edge> parse_edge(std::string_view text, const Truster& trust) {
  DW_ASSIGN_OR_RETURN(const Json json, open_record(text, kEdgeFormat, trust));
  Fields fields(json);
  Edge e;
  e.run = fields.run();
  e.version = fields.number("version");
  e.base = fields.optional_number("base");
  e.manifest = fields.digest("manifest", DigestKind::kSha256);
  e.base_manifest = fields.optional_digest("base_manifest", DigestKind::kSha256);
  e.created = fields.text("created");
  e.parts = fields.parts();
  DW_RETURN_IF_ERROR(fields.status());
  DW_RETURN_IF_ERROR(check_sizes(e.parts));
  if (e.base.has_value() != e.base_manifest.has_value() || (e.base && *e.base >= e.version)) {
    return bad("base", "an older version and its manifest, or neither");
  }
  return e;
}

Digest record_digest(std::string_view json) {
  return digest_of(DigestKind::kSha256,
                   {reinterpret_cast<const uint8_t*>(json.data()), json.size()});
}

Digest boxes_digest(const std::vector<BoxDigest>& boxes) {
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
    const Schema::Tensor& tensor = schema.tensors[i];
    states.push_back({tensor.name, tensor.dtype, tensor.shape, manifest.digests[i]});
  }
  return states;
}

}  // namespace deltawire

#include "format/delta_index.h"

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "format/delta_part.h"
#include "tensor/text.h"

namespace deltawire {
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

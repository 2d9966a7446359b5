#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/json.h"
#include "tensor/safetensors.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

constexpr size_t kAlignment = 8;

Status check_names(const std::vector<TensorSpec>& tensors, const Metadata& metadata) {
  std::unordered_set<std::string_view> seen;
  for (const TensorSpec& tensor : tensors) {
    const std::string place = "tensor " + quote(tensor.name) + ": ";
    if (!is_utf8(tensor.name)) return invalid_argument(place + "name is not valid UTF-8");
    if (tensor.name == kMetadataKey) return invalid_argument(place + "name is reserved");
    if (!seen.insert(tensor.name).second) return invalid_argument(place + "name is used twice");
    if (tensor.shape.size() > kMaxRank) {
      return invalid_argument(place + "over " + std::to_string(kMaxRank) + " dimensions");
    }
  }
  seen.clear();
  for (const auto& [key, value] : metadata) {
    const std::string place = "metadata key " + quote(key) + ": ";
    if (!is_utf8(key) || !is_utf8(value)) return invalid_argument(place + "not valid UTF-8");
    if (!seen.insert(key).second) return invalid_argument(place + "used twice");
  }
  return {};
}

std::string json_string(const std::string& text) { return json_text(nlohmann::json(text)); }

std::string json_metadata(const Metadata& metadata) {
  std::string json = json_string(std::string(kMetadataKey)) + ":{";
  for (const auto& [key, value] : metadata) {
    if (json.back() != '{') json += ',';
    json += json_string(key) + ":" + json_string(value);
  }
  return json + "}";
}

std::string json_entry(const TensorSpec& tensor, uint64_t begin, uint64_t end) {
  std::string json = json_string(tensor.name) + R"(:{"dtype":")";
  json.append(dtype_name(tensor.dtype)).append(R"(","shape":[)");
  for (const uint64_t extent : tensor.shape) {
    if (json.back() != '[') json += ',';
    json += std::to_string(extent);
  }
  return json + R"(],"data_offsets":[)" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

}  // namespace

Result<uint64_t> data_size_bytes(const std::vector<TensorSpec>& tensors) {
  uint64_t total = 0;
  for (const TensorSpec& tensor : tensors) {
    auto size = tensor_size_bytes(tensor.dtype, tensor.shape);
    if (!size.ok()) return std::move(size).status().at("tensor " + quote(tensor.name));
    if (!checked_add(total, *size, &total)) {
      return invalid_argument("tensor " + quote(tensor.name) + ": tensors take over 2^64 bytes");
    }
  }
  return total;
}

// By hand, for order: a JSON library would sort the keys.
Result<std::string> serialise_safetensors_header(const std::vector<TensorSpec>& tensors,
                                                 const Metadata& metadata) {
  DW_RETURN_IF_ERROR(check_names(tensors, metadata));
  if (auto total = data_size_bytes(tensors); !total.ok()) return std::move(total).status();
  std::string header(sizeof(uint64_t), '\0');
  header += '{';
  if (!metadata.empty()) header += json_metadata(metadata);
  uint64_t begin = 0;
  for (const TensorSpec& tensor : tensors) {
    if (header.back() != '{') header += ',';
    const uint64_t end = begin + *tensor_size_bytes(tensor.dtype, tensor.shape);
    header += json_entry(tensor, begin, end);
    begin = end;
  }
  header += '}';
  header.resize((header.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  const uint64_t length = header.size() - sizeof(uint64_t);
  if (length > kMaxHeaderBytes) {
    return invalid_argument("header takes " + std::to_string(length) +
                            " bytes, over the limit of " + std::to_string(kMaxHeaderBytes));
  }
  store_le(header.data(), length);
  return header;
}

}  // namespace deltawire

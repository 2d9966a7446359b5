#include "tensor/safetensors.h"

#include <algorithm>

#include "tensor/defects.h"
#include "tensor/header_parser.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

constexpr size_t kLengthBytes = 8;

std::string range(const TensorEntry& entry) {
  return "[" + std::to_string(entry.begin) + ", " + std::to_string(entry.end) + "]";
}

Status tensor_corruption(const TensorEntry& entry, std::string_view phrase, std::string detail) {
  return corruption("tensor " + quote(entry.spec.name) + ": " + std::string(phrase) + ": " +
                    std::move(detail));
}

Status check_entry(const TensorEntry& entry, uint64_t data_bytes) {
  if (entry.begin > entry.end) {
    return tensor_corruption(entry, defect::kOffsetsReversed, range(entry));
  }
  if (entry.end > data_bytes) {
    return tensor_corruption(entry, defect::kOffsetsPastEnd,
                             range(entry) + " of " + std::to_string(data_bytes) + " bytes");
  }
  const auto size = tensor_size_bytes(entry.spec.dtype, entry.spec.shape);
  if (!size.ok()) {
    return tensor_corruption(entry, defect::kShapeInvalid, size.status().message());
  }
  if (*size != entry.end - entry.begin) {
    return tensor_corruption(entry, defect::kSizeMismatch,
                             std::string(dtype_name(entry.spec.dtype)) + " " +
                                 shape_to_string(entry.spec.shape) + " takes " +
                                 std::to_string(*size) + " bytes, " + range(entry) + " holds " +
                                 std::to_string(entry.end - entry.begin));
  }
  return {};
}

// Entries sorted by offset must follow each other without gap or overlap and end with the data.
Status check_coverage(const std::vector<TensorEntry>& entries, uint64_t data_bytes) {
  uint64_t covered = 0;
  for (const TensorEntry& entry : entries) {
    if (entry.begin != covered) {
      return tensor_corruption(
          entry, entry.begin < covered ? defect::kOverlap : defect::kHole,
          "expected to begin at " + std::to_string(covered) + ", got " + range(entry));
    }
    covered = entry.end;
  }
  if (covered != data_bytes) {
    return corruption(std::string(defect::kUncovered) + ": tensors end at " +
                      std::to_string(covered) + " of " + std::to_string(data_bytes) + " bytes");
  }
  return {};
}

}  // namespace

const std::string* find_metadata(const Metadata& metadata, std::string_view key) noexcept {
  for (const auto& [name, value] : metadata) {
    if (name == key) return &value;
  }
  return nullptr;
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, uint64_t data_bytes) {
  // The index may be indented and end with a newline; the header may not.
  if (json.empty() || json.front() != '{') return corruption(std::string(defect::kNotObject));
  json = json.substr(0, json.find_last_not_of(' ') + 1);
  DW_ASSIGN_OR_RETURN(SafetensorsHeader header, parse_header_json(json));
  if (json.back() != '}') return corruption(std::string(defect::kTrailingBytes));
  for (const TensorEntry& entry : header.entries) {
    DW_RETURN_IF_ERROR(check_entry(entry, data_bytes));
  }
  std::stable_sort(header.entries.begin(), header.entries.end(),
                   [](const TensorEntry& a, const TensorEntry& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  DW_RETURN_IF_ERROR(check_coverage(header.entries, data_bytes));
  return header;
}

namespace {

// A zip file, or a pickle of protocol 2 and later. A safetensors file, whole or cut short, may
// begin with the same bytes, but then has a brace behind them.
bool is_pickled(Bytes file, uint64_t length) {
  if (file.size() == kLengthBytes || file[kLengthBytes] == '{') return false;
  const bool is_zip = file[0] == 'P' && file[1] == 'K' && file[2] == 3 && file[3] == 4;
  const bool is_pickle = file[0] == 0x80 && file[1] >= 2 && file[1] <= 5;
  return is_zip || (is_pickle && length > file.size() - kLengthBytes);
}

}  // namespace

Result<SafetensorsView> parse_safetensors(Bytes file, std::string* header_copy) {
  if (file.size() < kLengthBytes) {
    return corruption(std::string(defect::kTooShort) + ": " + std::to_string(file.size()) +
                      " bytes");
  }
  const auto length = load_le<uint64_t>(file.data());
  if (is_pickled(file, length)) return unsupported("a pickled file, as torch.save writes it");
  if (length == 0) return corruption(std::string(defect::kHeaderEmpty));
  if (length > kMaxHeaderBytes) {
    return corruption(std::string(defect::kHeaderOverLimit) + " of " +
                      std::to_string(kMaxHeaderBytes) + ": " + std::to_string(length) +
                      "; is this a safetensors file?");
  }
  if (length > file.size() - kLengthBytes) {
    return corruption(std::string(defect::kHeaderPastEnd) + ": " + std::to_string(length) +
                      " bytes, " + std::to_string(file.size() - kLengthBytes) + " are there");
  }
  std::string_view json(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  if (header_copy != nullptr) {
    header_copy->resize(kLengthBytes + length);
    store_le<uint64_t>(reinterpret_cast<uint8_t*>(header_copy->data()), length);
    std::copy(json.begin(), json.end(), header_copy->begin() + kLengthBytes);
    json = std::string_view(*header_copy).substr(kLengthBytes);
  }
  const Bytes data = file.subspan(kLengthBytes + length);
  DW_ASSIGN_OR_RETURN(SafetensorsHeader header, parse_safetensors_header(json, data.size()));
  SafetensorsView view{kLengthBytes + length, std::move(header.metadata), {}};
  view.tensors.reserve(header.entries.size());
  for (TensorEntry& entry : header.entries) {
    view.tensors.push_back({std::move(entry.spec.name), entry.spec.dtype,
                            std::move(entry.spec.shape),
                            data.subspan(entry.begin, entry.end - entry.begin)});
  }
  return view;
}

}  // namespace deltawire

#include "tensor/safetensors.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "tensor/defects.h"
#include "tensor/form.h"
#include "tensor/json_handler.h"
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
                             form_of(entry.spec) + " takes " + std::to_string(*size) + " bytes, " +
                                 range(entry) + " holds " +
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
// begin with the same bytes, but a brace follows them.
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

namespace {

enum class Field : uint8_t { kDType, kShape, kOffsets };
constexpr std::array<std::string_view, 3> kFieldNames = {"dtype", "shape", "data_offsets"};
constexpr std::array<std::string_view, 3> kFieldTypes = {"a string", "an array of integers",
                                                         "an array of two integers"};

// The header, its entries, their arrays.
constexpr size_t kMaxHeaderDepth = 3;

class HeaderHandler final : public JsonHandler {
 public:
  HeaderHandler() : JsonHandler(kMaxHeaderDepth) {}
  SafetensorsHeader take() { return std::move(header_); }

 private:
  // Which container the next event belongs to.
  enum class In : uint8_t { kNothing, kHeader, kMetadata, kEntry, kShape, kOffsets };

  bool on_object() override {
    if (in_ == In::kNothing) return go(In::kHeader);
    if (in_ != In::kHeader) return unexpected("an object");
    if (key_ == kMetadataKey) return go(In::kMetadata);
    header_.entries.emplace_back().spec.name = std::move(key_);
    seen_.fill(false);
    return go(In::kEntry);
  }

  bool on_key(std::string& key) override {
    if (in_ == In::kEntry) return on_field(key);
    if (in_ == In::kHeader && key == kMetadataKey && std::exchange(metadata_seen_, true)) {
      return fail(corruption(std::string(defect::kDuplicateField) + ": " + quote(key)));
    }
    key_ = std::move(key);
    return true;
  }

  bool on_field(std::string_view name) {
    const auto found = std::find(kFieldNames.begin(), kFieldNames.end(), name);
    if (found == kFieldNames.end()) return fail_tensor(defect::kUnknownField, quote(name));
    const size_t index = size_t(found - kFieldNames.begin());
    if (std::exchange(seen_[index], true)) return fail_tensor(defect::kDuplicateField, name);
    field_ = Field(index);
    return true;
  }

  bool on_object_end() override {
    if (in_ == In::kHeader) return go(In::kNothing);
    if (in_ == In::kEntry) {
      const auto missing = std::find(seen_.begin(), seen_.end(), false);
      if (missing != seen_.end()) {
        return fail_tensor(defect::kMissingField, kFieldNames[size_t(missing - seen_.begin())]);
      }
    }
    return go(In::kHeader);
  }

  bool on_array() override {
    if (in_ == In::kEntry && field_ == Field::kShape) return go(In::kShape);
    if (in_ == In::kEntry && field_ == Field::kOffsets) {
      num_offsets_ = 0;
      return go(In::kOffsets);
    }
    return unexpected("an array");
  }

  bool on_array_end() override {
    if (in_ == In::kOffsets && num_offsets_ != 2) {
      return unexpected(num_offsets_ == 0 ? "none" : "one");
    }
    return go(In::kEntry);
  }

  bool on_string(std::string& text) override {
    if (in_ == In::kMetadata) {
      header_.metadata.emplace_back(std::move(key_), std::move(text));
      return true;
    }
    if (in_ != In::kEntry || field_ != Field::kDType) return unexpected("a string");
    const auto dtype = parse_dtype(text);
    if (!dtype) return fail(unsupported(at_tensor(defect::kUnknownDType, quote(text))));
    entry().spec.dtype = *dtype;
    return true;
  }

  bool on_unsigned(uint64_t number) override {
    if (in_ == In::kShape) {
      Shape& shape = entry().spec.shape;
      if (shape.size() == kMaxRank) {
        return fail_tensor(defect::kRankOverLimit, "at most " + std::to_string(kMaxRank));
      }
      shape.push_back(number);
      return true;
    }
    if (in_ != In::kOffsets) return unexpected("a number");
    if (num_offsets_ == 2) return unexpected("more");
    (num_offsets_++ == 0 ? entry().begin : entry().end) = number;
    return true;
  }

  bool on_other_number(std::string_view text) override {
    if (in_ != In::kShape && in_ != In::kOffsets) return unexpected("a number");
    return fail_tensor(defect::kBadNumber,
                       std::string(field_name()) + " has " + std::string(text.substr(0, 40)));
  }

  bool on_literal(std::string_view text) override { return unexpected(text); }

  bool go(In in) {
    in_ = in;
    return true;
  }

  TensorEntry& entry() { return header_.entries.back(); }
  std::string_view field_name() const { return kFieldNames[size_t(field_)]; }

  bool unexpected(std::string_view got) {
    if (in_ == In::kMetadata || (in_ == In::kHeader && key_ == kMetadataKey)) {
      const std::string place = in_ == In::kMetadata ? "key " + quote(key_) + " has " : "got ";
      return fail(
          corruption(std::string(defect::kMetadataNotStrings) + ": " + place + std::string(got)));
    }
    if (in_ == In::kHeader) {
      return fail(corruption("tensor " + quote(key_) + ": " + std::string(defect::kWrongType) +
                             ": expected an object, got " + std::string(got)));
    }
    return fail_tensor(defect::kWrongType, std::string(field_name()) + ": expected " +
                                               std::string(kFieldTypes[size_t(field_)]) + ", got " +
                                               std::string(got));
  }

  std::string at_tensor(std::string_view phrase, std::string_view detail) {
    return "tensor " + quote(entry().spec.name) + ": " + std::string(phrase) + ": " +
           std::string(detail);
  }
  bool fail_tensor(std::string_view phrase, std::string_view detail) {
    return fail(corruption(at_tensor(phrase, detail)));
  }

  SafetensorsHeader header_;
  In in_ = In::kNothing;
  std::string key_;
  bool metadata_seen_ = false;
  Field field_ = Field::kDType;
  std::array<bool, 3> seen_{};
  int num_offsets_ = 0;
};

// Sorts instead of hashing, so that colliding names cannot make it slow.
const std::string* find_duplicate(std::vector<const std::string*> names) {
  std::sort(names.begin(), names.end(), [](auto* a, auto* b) { return *a < *b; });
  const auto found =
      std::adjacent_find(names.begin(), names.end(), [](auto* a, auto* b) { return *a == *b; });
  return found == names.end() ? nullptr : *found;
}

}  // namespace

Result<SafetensorsHeader> parse_header_json(std::string_view json) {
  HeaderHandler handler;
  DW_RETURN_IF_ERROR(parse_json_object(json, handler));
  SafetensorsHeader header = handler.take();
  std::vector<const std::string*> names;
  for (const auto& [key, value] : header.metadata) names.push_back(&key);
  if (const auto* key = find_duplicate(std::move(names))) {
    return corruption(std::string(defect::kDuplicateMetadata) + ": " + quote(*key));
  }
  names.clear();
  for (const TensorEntry& entry : header.entries) names.push_back(&entry.spec.name);
  if (const auto* name = find_duplicate(std::move(names))) {
    return corruption(std::string(defect::kDuplicateTensor) + ": " + quote(*name));
  }
  return header;
}

}  // namespace deltawire

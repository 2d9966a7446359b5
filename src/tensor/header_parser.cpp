#include "tensor/header_parser.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "tensor/defects.h"
#include "tensor/json_handler.h"
#include "tensor/text.h"

namespace deltawire {
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

// By sorting, not hashing: names chosen to collide cannot make it slow.
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

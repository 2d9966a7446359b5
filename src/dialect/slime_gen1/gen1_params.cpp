#include "dialect/slime_gen1/gen1_params.h"

#include <set>

#include "base/json.h"
#include "codec/checks.h"
#include "dialect/frames/zstd_frame.h"
#include "dialect/slime_gen1/gen1_file.h"
#include "dialect/slime_gen1/gen1_values.h"
#include "tensor/text.h"

namespace deltawire::gen1 {
namespace {

constexpr size_t kNumFields = 8;

Status wrong_field(const std::string& place, std::string_view field, std::string_view expected) {
  return corruption(place + ": \"" + std::string(field) + "\" is not " + std::string(expected));
}

Status read_number(const nlohmann::json& json, const std::string& place, const char* field,
                   uint64_t* out) {
  const auto it = json.find(field);
  if (it == json.end() || !it->is_number_unsigned()) return wrong_field(place, field, "a number");
  *out = it->get<uint64_t>();
  return {};
}

Status read_shape(const nlohmann::json& json, const std::string& place, Shape* out) {
  const auto it = json.find("shape");
  if (it == json.end() || !it->is_array()) return wrong_field(place, "shape", "a list");
  if (it->size() > kMaxRank) {
    return bad_payload(place + ": dimensions", "at most " + std::to_string(kMaxRank), it->size());
  }
  for (const nlohmann::json& extent : *it) {
    if (!extent.is_number_unsigned()) return wrong_field(place, "shape", "a list of numbers");
    out->push_back(extent.get<uint64_t>());
  }
  return {};
}

Status read_dtype(const nlohmann::json& json, const std::string& place, DType* out) {
  const auto it = json.find("dtype");
  if (it == json.end() || !it->is_string()) return wrong_field(place, "dtype", "text");
  const std::optional<DType> dtype = parse_torch_dtype(it->get_ref<const std::string&>());
  if (!dtype) {
    return unsupported(place + ": dtype " + quote(it->get<std::string>()) +
                       " is not one of slime's generation 1");
  }
  *out = *dtype;
  return {};
}

Result<ParamRecord> read_record(const nlohmann::json& json, size_t index) {
  std::string place = "metadata \"params\", entry " + std::to_string(index);
  if (!json.is_object()) return corruption(place + ": not an object");
  const auto name = json.find("name");
  if (name == json.end() || !name->is_string()) return wrong_field(place, "name", "text");
  ParamRecord record;
  record.spec.name = name->get<std::string>();
  place = "metadata \"params\", tensor " + quote(record.spec.name);
  if (json.size() != kNumFields) return bad_payload(place + ": fields", kNumFields, json.size());
  DW_RETURN_IF_ERROR(read_dtype(json, place, &record.spec.dtype));
  DW_RETURN_IF_ERROR(read_shape(json, place, &record.spec.shape));
  auto size = tensor_size_bytes(record.spec.dtype, record.spec.shape);
  if (!size.ok()) return corruption(place + ": " + size.status().message());
  uint64_t width = 0;
  DW_RETURN_IF_ERROR(read_number(json, place, "pos_start", &record.pos_start));
  DW_RETURN_IF_ERROR(read_number(json, place, "pos_end", &record.pos_end));
  DW_RETURN_IF_ERROR(read_number(json, place, "pos_width", &width));
  DW_RETURN_IF_ERROR(read_number(json, place, "val_start", &record.val_start));
  DW_RETURN_IF_ERROR(read_number(json, place, "val_end", &record.val_end));
  if (width != 2 && width != 4) return bad_payload(place + ": pos_width", "2 or 4", width);
  record.pos_width = unsigned(width);
  return record;
}

}  // namespace

Result<std::vector<ParamRecord>> parse_params(std::string_view text) {
  const nlohmann::json json = parse_json(text);
  if (!json.is_array()) return corruption("metadata \"params\": not a JSON list");
  std::vector<ParamRecord> records;
  std::set<std::string_view> names;
  records.reserve(json.size());
  for (const nlohmann::json& entry : json) {
    DW_ASSIGN_OR_RETURN(ParamRecord record, read_record(entry, records.size()));
    records.push_back(std::move(record));
    if (!names.insert(records.back().spec.name).second) {
      return corruption("metadata \"params\": tensor " + quote(records.back().spec.name) +
                        " is there twice");
    }
  }
  return records;
}

// With spaces after ':' and ',', and everything but ASCII escaped.
std::string params_text(const std::vector<ParamRecord>& params) {
  std::string text = "[";
  for (const ParamRecord& param : params) {
    if (text.size() > 1) text += ", ";
    const auto number = [](const char* field, uint64_t value) {
      return std::string(", \"") + field + "\": " + std::to_string(value);
    };
    text += "{\"name\": " + json_text(nlohmann::json(param.spec.name), {.ascii = true}) +
            ", \"dtype\": \"" + std::string(torch_dtype_name(param.spec.dtype)) +
            "\", \"shape\": " + shape_to_string(param.spec.shape) +
            number("pos_start", param.pos_start) + number("pos_end", param.pos_end) +
            number("pos_width", param.pos_width) + number("val_start", param.val_start) +
            number("val_end", param.val_end) + "}";
  }
  return text + "]";
}

namespace {

// Of one safetensors file: wide dtypes first, then by name. Booleans and U8 are not wider than
// positions.
bool values_come_first(DType dtype) { return dtype != DType::kU8 && dtype != DType::kBool; }

}  // namespace

bool Bucket::takes(DType dtype) const noexcept {
  return empty() || promote_exactly(dtype_, dtype).has_value();
}

void Bucket::add(const TensorSpec& spec, SparseChanges changes) {
  ParamRecord record;
  record.spec = spec;
  record.pos_start = positions_.size();
  record.pos_end = record.pos_start + changes.positions.size();
  record.pos_width = changes.position_width;
  record.val_start = num_values_;
  record.val_end = num_values_ += changes.count;
  dtype_ = empty() ? spec.dtype : promote_exactly(dtype_, spec.dtype).value_or(dtype_);
  size_bytes_ += changes.positions.size() + changes.values.size();
  positions_.insert(positions_.end(), changes.positions.begin(), changes.positions.end());
  values_.push_back({spec.dtype, std::move(changes.values)});
  params_.push_back(std::move(record));
}

Result<std::vector<uint8_t>> Bucket::write(std::string_view encoding, uint64_t version) {
  std::vector<uint8_t> values;
  values.reserve(num_values_ * (dtype_bits(dtype_) / 8));
  for (const Values& part : values_) {
    const std::vector<uint8_t> wide =
        part.dtype == dtype_ ? part.bytes : widen_values(part.dtype, dtype_, part.bytes);
    values.insert(values.end(), wide.begin(), wide.end());
  }
  const Metadata metadata = {{"encoding", std::string(encoding)},
                             {"params", params_text(params_)},
                             {"checksum", checksum(positions_, dtype_, values)},
                             {"current_version", std::to_string(version)}};
  const TensorSpec positions_spec{std::string(kPositions), DType::kU8, {positions_.size()}};
  const TensorSpec values_spec{std::string(kValues), dtype_, {num_values_}};
  const bool values_first = values_come_first(dtype_);
  DW_ASSIGN_OR_RETURN(
      const std::string header,
      serialise_safetensors_header(values_first ? std::vector{values_spec, positions_spec}
                                                : std::vector{positions_spec, values_spec},
                                   metadata));
  std::vector<uint8_t> file(header.begin(), header.end());
  file.reserve(header.size() + values.size() + positions_.size());
  const auto& first = values_first ? values : positions_;
  const auto& second = values_first ? positions_ : values;
  file.insert(file.end(), first.begin(), first.end());
  file.insert(file.end(), second.begin(), second.end());
  *this = Bucket();
  if (encoding != kDeltasZstd) return file;
  std::vector<uint8_t> frame;
  ZstdCompressor zstd;
  DW_RETURN_IF_ERROR(zstd.append(file, &frame));
  return frame;
}

}  // namespace deltawire::gen1

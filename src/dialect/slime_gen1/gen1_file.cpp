#include "dialect/slime_gen1/gen1_file.h"

#include <algorithm>

#include "codec/checks.h"
#include "dialect/foreign_file.h"
#include "dialect/frames/zstd_frame.h"
#include "dialect/slime_gen1/gen1_params.h"
#include "dialect/slime_gen1/gen1_values.h"
#include "tensor/form.h"
#include "tensor/text.h"

namespace deltawire::gen1 {
namespace {

bool is_zstd(Bytes bytes) {  // as the length of a safetensors header it would be over the limit
  return bytes.size() >= 4 && load_le<uint32_t>(bytes.data()) == 0xfd2fb528;
}

Result<Bytes> unpack(File* out) {
  const Bytes frame = out->file.bytes();
  if (!is_zstd(frame)) return frame;
  DW_ASSIGN_OR_RETURN(const uint64_t size, zstd_content_size(frame));
  const uint64_t most = std::max(kSmallContent, frame.size() * kMaxRatio);
  if (size > most) {
    return bad_payload("zstd content size",
                       "at most " + std::to_string(most) + " for a file of " +
                           std::to_string(frame.size()) + " bytes",
                       size);
  }
  DW_ASSIGN_OR_RETURN(out->content, allocate_bytes(size));
  ZstdDecompressor zstd;
  DW_RETURN_IF_ERROR(zstd.decompress(frame, {out->content.get(), size}));
  return Bytes(out->content.get(), size);
}

const TensorView* find_tensor(const SafetensorsView& view, std::string_view name) {
  const auto it = std::ranges::find(view.tensors, name, &TensorView::name);
  return it == view.tensors.end() ? nullptr : &*it;
}

struct Arrays {
  const TensorView* positions = nullptr;
  const TensorView* values = nullptr;
};

Result<Arrays> find_arrays(const SafetensorsView& view) {
  const Arrays arrays{find_tensor(view, kPositions), find_tensor(view, kValues)};
  if (arrays.positions == nullptr) return corruption("missing tensor \"__positions__\"");
  if (arrays.values == nullptr) return corruption("missing tensor \"__values__\"");
  if (view.tensors.size() != 2) {
    return bad_payload("number of tensors", 2, view.tensors.size());
  }
  if (arrays.positions->dtype != DType::kU8 || arrays.positions->shape.size() != 1) {
    return corruption("tensor \"__positions__\": expected U8 of one dimension, got " +
                      form_of(*arrays.positions));
  }
  if (torch_dtype_name(arrays.values->dtype).empty() || arrays.values->shape.size() != 1) {
    return corruption("tensor \"__values__\": expected numbers of one dimension, got " +
                      form_of(*arrays.values));
  }
  return arrays;
}

Result<std::string> take_metadata(const Metadata& metadata, std::string_view key) {
  if (const std::string* value = find_metadata(metadata, key)) return *value;
  return corruption("missing metadata \"" + std::string(key) + "\"");
}

Status read_versions(const Metadata& metadata, File* out) {
  DW_ASSIGN_OR_RETURN(const std::string current, take_metadata(metadata, "current_version"));
  const std::optional<uint64_t> version = parse_padded_number(current, 1);
  if (!version) return bad_payload("metadata \"current_version\"", "a number", quote(current));
  out->version = *version;
  const std::string* previous = find_metadata(metadata, "prev_version");
  if (previous == nullptr) return {};
  // "default": what engines call the weights that they began with.
  out->base = *previous == "default" ? 0 : parse_padded_number(*previous, 1);
  if (!out->base) return bad_payload("metadata \"prev_version\"", "a number", quote(*previous));
  return {};
}

Status check_checksum(const Metadata& metadata, const Arrays& arrays, File* out) {
  const std::string* stated = find_metadata(metadata, "checksum");
  out->has_checksum = stated != nullptr;
  if (stated == nullptr && out->base) return {};
  if (stated == nullptr) return corruption("missing metadata \"checksum\"");
  const std::string real =
      checksum(arrays.positions->bytes, arrays.values->dtype, arrays.values->bytes);
  if (real != *stated) return bad_payload("checksum", quote(*stated), quote(real));
  return {};
}

// Parameters fill both arrays, in their order, without a hole and without an overlap.
class ParamCutter {
 public:
  ParamCutter(const Arrays& arrays, bool gaps)
      : arrays_(arrays), gaps_(gaps), value_bytes_(dtype_bits(arrays.values->dtype) / 8) {}

  Result<Param> cut(ParamRecord record) {
    const DType stored = arrays_.values->dtype;
    if (!holds_exactly(stored, record.spec.dtype)) {
      return unsupported("dtype " + std::string(dtype_name(record.spec.dtype)) +
                         " does not survive in values of " + std::string(dtype_name(stored)) +
                         ": write it to a file of its own dtype");
    }
    const unsigned width = record.pos_width;
    if (width != 4 && (width != 2 || !gaps_)) {
      return bad_payload("pos_width", gaps_ ? "2 or 4" : "4", width);
    }
    if (record.pos_start != pos_end_) return bad_payload("pos_start", pos_end_, record.pos_start);
    if (record.val_start != val_end_) return bad_payload("val_start", val_end_, record.val_start);
    DW_RETURN_IF_ERROR(check_end("pos_end", pos_end_, record.pos_end, num_position_bytes()));
    DW_RETURN_IF_ERROR(check_end("val_end", val_end_, record.val_end, num_values()));
    const uint64_t position_bytes = record.pos_end - record.pos_start;
    const uint64_t count = record.val_end - record.val_start;
    if (position_bytes % width != 0 || position_bytes / width != count) {
      return bad_payload("bytes of positions for " + std::to_string(count) + " values",
                         count * width, position_bytes);
    }
    Param param;
    param.positions = {arrays_.positions->bytes.subspan(record.pos_start, position_bytes), width,
                       gaps_};
    param.values =
        arrays_.values->bytes.subspan(record.val_start * value_bytes_, count * value_bytes_);
    param.spec = std::move(record.spec);
    pos_end_ = record.pos_end;
    val_end_ = record.val_end;
    DW_RETURN_IF_ERROR(check_positions(param));
    return param;
  }

  Status check_all_used() const {
    if (pos_end_ != num_position_bytes()) {
      return bad_payload("bytes of \"__positions__\"", pos_end_, num_position_bytes());
    }
    if (val_end_ != num_values()) {
      return bad_payload("elements of \"__values__\"", val_end_, num_values());
    }
    return {};
  }

 private:
  uint64_t num_position_bytes() const { return arrays_.positions->bytes.size(); }
  uint64_t num_values() const { return arrays_.values->bytes.size() / value_bytes_; }

  static Status check_end(std::string_view what, uint64_t begin, uint64_t end, uint64_t limit) {
    if (end >= begin && end <= limit) return {};
    return bad_payload(what, std::to_string(begin) + " to " + std::to_string(limit), end);
  }

  static Status check_positions(const Param& param) {
    DW_ASSIGN_OR_RETURN(const uint64_t elements, num_elements(param.spec.shape));
    DW_ASSIGN_OR_RETURN(const uint64_t end, sparse_positions_end(param.positions));
    if (end <= elements) return {};
    return bad_payload("last position in " + shape_to_string(param.spec.shape),
                       "below " + std::to_string(elements), end - 1);
  }

  const Arrays arrays_;
  const bool gaps_;
  const unsigned value_bytes_;
  uint64_t pos_end_ = 0, val_end_ = 0;
};

Status read_file(File* out) {
  DW_ASSIGN_OR_RETURN(const Bytes bytes, unpack(out));
  DW_ASSIGN_OR_RETURN(const SafetensorsView view, parse_safetensors(bytes));
  DW_ASSIGN_OR_RETURN(const Arrays arrays, find_arrays(view));
  DW_ASSIGN_OR_RETURN(out->encoding, take_metadata(view.metadata, "encoding"));
  const bool packed = is_zstd(out->file.bytes());
  if (packed ? out->encoding != kDeltasZstd
             : out->encoding != kIndices && out->encoding != kDeltas) {
    return bad_payload("metadata \"encoding\"", packed ? "deltas_zstd" : "indices or deltas",
                       quote(out->encoding));
  }
  DW_RETURN_IF_ERROR(read_versions(view.metadata, out));
  DW_RETURN_IF_ERROR(check_checksum(view.metadata, arrays, out));
  out->values_dtype = arrays.values->dtype;
  DW_ASSIGN_OR_RETURN(const std::string params, take_metadata(view.metadata, "params"));
  DW_ASSIGN_OR_RETURN(std::vector<ParamRecord> records, parse_params(params));
  ParamCutter cutter(arrays, out->encoding != kIndices);
  for (ParamRecord& record : records) {
    const std::string name = record.spec.name;
    auto param = cutter.cut(std::move(record));
    if (!param.ok()) return std::move(param).status().at("tensor " + quote(name));
    out->params.push_back(std::move(*param));
  }
  return cutter.check_all_used();
}

}  // namespace

Result<File> open_file(ForeignFile file) {
  const std::string where = file.where();
  File out;
  out.file = std::move(file);
  Status status = read_file(&out);
  if (!status.ok()) return std::move(status).at(where);
  return out;
}

Result<std::vector<uint8_t>> param_values(const File& file, const Param& param) {
  return narrow_values(file.values_dtype, param.spec.dtype, param.values);
}

}  // namespace deltawire::gen1

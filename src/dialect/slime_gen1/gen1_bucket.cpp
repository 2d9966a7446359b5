#include "dialect/slime_gen1/gen1_bucket.h"

#include "dialect/frames/zstd_frame.h"
#include "dialect/slime_gen1/gen1_file.h"
#include "dialect/slime_gen1/gen1_values.h"

namespace deltawire::gen1 {
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

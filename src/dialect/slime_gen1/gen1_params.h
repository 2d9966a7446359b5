// The `params` of a file: JSON, as Python's json.dumps writes it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/status.h"
#include "dialect/sparse_changes.h"
#include "tensor/safetensors.h"

namespace deltawire::gen1 {

// pos_* count bytes of `__positions__`, val_* elements of `__values__`.
struct ParamRecord {
  TensorSpec spec;
  uint64_t pos_start = 0, pos_end = 0;
  unsigned pos_width = 4;
  uint64_t val_start = 0, val_end = 0;
};

// Corruption names the parameter and the field; Unsupported an unknown dtype. Each name is there
// once.
Result<std::vector<ParamRecord>> parse_params(std::string_view json);
std::string params_text(const std::vector<ParamRecord>& params);

// The changes that go into one file.
class Bucket {
 public:
  bool empty() const noexcept { return params_.empty(); }
  // Of positions and values, in their own dtypes: what slime's buffer size counts.
  uint64_t size_bytes() const noexcept { return size_bytes_; }
  // Whether values of this dtype survive what the bucket's are stored as then.
  bool takes(DType dtype) const noexcept;
  void add(const TensorSpec& spec, SparseChanges changes);

  // The file, as the safetensors package would write it; the bucket is empty afterwards.
  Result<std::vector<uint8_t>> write(std::string_view encoding, uint64_t version);

 private:
  struct Values {
    DType dtype;
    std::vector<uint8_t> bytes;
  };
  std::vector<ParamRecord> params_;
  std::vector<uint8_t> positions_;
  std::vector<Values> values_;  // one for each parameter
  uint64_t num_values_ = 0, size_bytes_ = 0;
  DType dtype_ = DType::kBF16;  // that all values are stored in
};

}  // namespace deltawire::gen1

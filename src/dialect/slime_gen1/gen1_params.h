// The `params` of a file: JSON, as Python's json.dumps writes it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/status.h"
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

}  // namespace deltawire::gen1

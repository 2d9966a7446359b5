// Lists of tensors of real models, by their shapes alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace deltawire::cli {

// "8b": Qwen3-8B. "1.7b": Qwen3-1.7B. "moe": six layers of Qwen3-30B-A3B, 2,300 experts' tensors.
// Elements of each tensor; empty when the name is unknown.
std::vector<uint64_t> tensors_of_model(std::string_view name);
std::vector<std::string> device_models();

}  // namespace deltawire::cli

// The safetensors header's JSON, as written: syntax and types are checked, layout is not.
#pragma once

#include <string_view>

#include "tensor/safetensors.h"

namespace deltawire {

// Entries come in header order with whatever offsets the file claims. Names and metadata keys are
// unique.
Result<SafetensorsHeader> parse_header_json(std::string_view json);

}  // namespace deltawire

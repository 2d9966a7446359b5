// Names, dtypes and shapes of a version's tensors. docs/format.md, "The chain".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "deltawire/manifest.h"
#include "deltawire/status.h"

namespace deltawire {

// A limit on what is read from a store that is not trusted.
inline constexpr uint64_t kMaxSchemaBytes = uint64_t{256} << 20;

std::string serialise_schema(const Schema& schema);
Result<Schema> parse_schema(std::string_view json);

}  // namespace deltawire

// The index of a delta in several parts: a small JSON file beside them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "deltawire/digest.h"
#include "deltawire/status.h"

namespace deltawire {

inline constexpr std::string_view kDeltaIndexName = "delta.index.json";
inline constexpr uint64_t kMaxDeltaIndexBytes = 64 << 20;

struct DeltaIndexPart {
  std::string name;  // a plain file name
  uint64_t size_bytes = 0;
  Digest sha256;
};

struct DeltaIndex {
  Digest base, target;
  std::vector<DeltaIndexPart> parts;
};

std::string part_name(size_t number);  // "part-00000.safetensors"
std::string serialise_delta_index(const DeltaIndex& index);
Result<DeltaIndex> parse_delta_index(std::string_view json);

}  // namespace deltawire

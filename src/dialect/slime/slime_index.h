// `model.safetensors.index.json` of a slime version: what it is, and which part has which tensor.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "deltawire/status.h"
#include "dialect/checksum.h"
#include "tensor/sharded_index.h"

namespace deltawire::slime {

struct Delta {
  uint64_t base = 0;
  bool overwrite = false;  // else xor
  ChecksumKind checksum = ChecksumKind::kXxh3_128;
};

struct Index {
  std::optional<Delta> delta;       // none: a full checkpoint
  std::vector<IndexEntry> entries;  // sorted by tensor
};

// Corruption for what is missing or contradicts itself or `version`, the one of the folder's name;
// Unsupported for encodings, compressions and checksums that are not known.
Result<Index> parse_slime_index(std::string_view json, uint64_t version);

}  // namespace deltawire::slime

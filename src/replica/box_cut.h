// From a change of a tensor to the change of a box of it.
#pragma once

#include <optional>

#include "deltawire/tensor.h"
#include "replica/journal_redo.h"

namespace deltawire {

// A change of contiguous bytes, from `begin` on.
struct CutChange {
  uint64_t begin = 0, size_bytes = 0;
  CodecId codec = CodecId::kRaw;
  std::vector<uint8_t> payload;
  uint64_t num_changed = 0;
};

// What an entry in absolute values, of codec gaps or raw, changes inside a box of its tensor: in
// bytes of the box's contents. None when that is nothing.
Result<std::optional<CutChange>> cut_to_box(const RedoEntry& redo, const Box& box);

}  // namespace deltawire

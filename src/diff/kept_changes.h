// The changes of a publish, kept until the commit. They advance a snapshot when the tensors may
// have changed already.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "codec/codec.h"
#include "transfer/part_stream.h"

namespace deltawire {

struct KeptChange {
  size_t tensor = 0;  // as published
  // The patched bytes of the tensor or its box; all of a new tensor.
  uint64_t begin = 0, size_bytes = 0;
  Layout layout = {};  // of those bytes
  CodecId codec = CodecId::kRaw;
  Payload payload;
};

// Bounded: if the changes exceed the limit, none are kept.
class KeptChanges {
 public:
  explicit KeptChanges(uint64_t limit_bytes) : left_bytes_(limit_bytes) {}

  void add(KeptChange change) {
    const uint64_t bytes = change.payload.bytes.size();
    complete_ = complete_ && bytes <= left_bytes_;
    if (complete_) {
      left_bytes_ -= bytes;
      changes_[change.tensor].push_back(std::move(change));
    } else {
      changes_.clear();
    }
  }
  // False: the limit was exceeded, so the tensors are needed.
  bool complete() const noexcept { return complete_; }
  std::span<const KeptChange> of(size_t tensor) const {
    const auto found = changes_.find(tensor);
    return found == changes_.end() ? std::span<const KeptChange>() : found->second;
  }

 private:
  uint64_t left_bytes_;
  bool complete_ = true;
  std::map<size_t, std::vector<KeptChange>> changes_;  // by tensor
};

}  // namespace deltawire

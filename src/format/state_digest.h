// One digest for a whole state: what a delta is made from, and what it leads to.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "deltawire/digest.h"
#include "deltawire/tensor.h"

namespace deltawire {

// What states are built over when entries carry digests of this kind: the same, unless that is too
// weak to tell states apart.
constexpr DigestKind state_digest_kind(DigestKind entries) noexcept {
  return entries == DigestKind::kAdler32 ? DigestKind::kXxh3_128 : entries;
}

struct TensorState {
  std::string name;
  DType dtype = DType::kU8;
  Shape shape;
  Digest digest;  // of the kind that state_digest_kind() gives
};

// A tensor's digest for its state, given the one in its entry.
inline Digest tensor_state_digest(const Digest& entry, Bytes bytes) {
  const DigestKind kind = state_digest_kind(entry.kind);
  return kind == entry.kind ? entry : digest_of(kind, bytes);
}

// xxh3-128 of one line per tensor, sorted by name: name NUL dtype NUL shape NUL hex digest newline.
Digest state_digest(std::vector<TensorState> tensors);

}  // namespace deltawire

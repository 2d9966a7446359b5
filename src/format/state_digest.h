// One digest for a whole state: the base or the target of a delta.
#pragma once

#include <string>
#include <vector>

#include "deltawire/digest.h"
#include "deltawire/tensor.h"

namespace deltawire {

struct TensorState : TensorSpec {
  Digest digest;
};

// xxh3-128 of one line per tensor, sorted by name: name NUL dtype NUL shape NUL hex digest newline.
Digest state_digest(std::vector<TensorState> tensors);

}  // namespace deltawire

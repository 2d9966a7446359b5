#include "format/state_digest.h"

#include <algorithm>

namespace deltawire {

Digest state_digest(std::vector<TensorState> tensors) {
  const auto by_name = [](const TensorState& a, const TensorState& b) { return a.name < b.name; };
  if (!std::is_sorted(tensors.begin(), tensors.end(), by_name)) {  // as most callers have them
    std::sort(tensors.begin(), tensors.end(), by_name);
  }
  Hasher hasher(DigestKind::kXxh3_128);
  std::string line;
  for (const TensorState& tensor : tensors) {
    line = tensor.name;
    line.push_back('\0');
    line += dtype_name(tensor.dtype);
    line.push_back('\0');
    line += shape_to_string(tensor.shape);
    line.push_back('\0');
    line += tensor.digest.hex();
    line.push_back('\n');
    hasher.update(line);
  }
  return hasher.finish();
}

}  // namespace deltawire

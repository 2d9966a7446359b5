#include "replica/tensor_set.h"

#include "tensor/text.h"

namespace deltawire {

std::string place_of(const LiveTensor& tensor) {
  const std::string name = "tensor " + quote(tensor.name);
  return tensor.box.whole() ? name : name + ", box " + box_to_string(tensor.box);
}

Status check_digest(const LiveTensor& tensor, const Digest& got, const Manifest& manifest,
                    size_t number) {
  if (got == manifest.digests[number]) return {};
  return base_mismatch(place_of(tensor) + ": not what version " + std::to_string(manifest.version) +
                       " says: " + digest_difference(manifest.digests[number], got));
}

Status check_digest(const LiveTensor& tensor, const Digest& got, const Digest& expected) {
  if (got == expected) return {};
  return base_mismatch(place_of(tensor) +
                       ": not what the tensor has there: " + digest_difference(expected, got));
}

}  // namespace deltawire

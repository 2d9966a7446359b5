#include "sync/replica/tensor_set.h"

#include "tensor/text.h"

namespace deltawire {

Status check_digest(const LiveTensor& tensor, const Digest& got, const Manifest& manifest,
                    size_t number) {
  if (got == manifest.digests[number]) return {};
  return base_mismatch("tensor " + quote(tensor.name) + ": not what version " +
                       std::to_string(manifest.version) +
                       " says: " + digest_difference(manifest.digests[number], got));
}

}  // namespace deltawire

#include "sync/tensor_digest.h"

namespace deltawire {

Digest tensor_digest(DigestKind kind, DType dtype, const Shape& shape, Bytes bytes,
                     const std::vector<BoxDigest>* boxes) {
  if (boxes == nullptr) return digest_of(kind, bytes);
  std::vector<BoxDigest> computed;
  for (const BoxDigest& box : *boxes) {
    std::vector<uint8_t> contents(tensor_size_bytes(dtype, box_shape(box.box, shape)).value());
    copy_box_out(box.box, dtype, shape, bytes, contents);
    computed.push_back({box.box, digest_of(kind, contents)});
  }
  return boxes_digest(computed);
}

}  // namespace deltawire

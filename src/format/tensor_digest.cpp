#include "format/tensor_digest.h"

#include "tensor/box.h"

namespace deltawire {

Digest box_digest(DType dtype, const Shape& shape, Bytes tensor, const Box& box) {
  if (box.whole()) return digest_of(DigestKind::kSum128, tensor);
  const BoxRows rows(box, dtype, shape);
  Hasher hasher(DigestKind::kSum128);
  for (uint64_t row = 0; row < rows.count(); ++row) {
    hasher.update(tensor.subspan(rows.position(row), rows.row_bytes()));
  }
  return hasher.finish();
}

Digest tensor_digest(DType dtype, const Shape& shape, Bytes bytes,
                     const std::vector<BoxDigest>* boxes) {
  if (boxes == nullptr) return digest_of(DigestKind::kSum128, bytes);
  std::vector<BoxDigest> computed;
  for (const BoxDigest& box : *boxes) {
    computed.push_back({box.box, box_digest(dtype, shape, bytes, box.box)});
  }
  return boxes_digest(computed, bytes.size()).value();  // they have no sums
}

}  // namespace deltawire

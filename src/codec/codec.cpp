#include "codec/codec.h"

namespace deltawire {

Result<Encoded> Codec::encode_hashed(Layout layout, Bytes old_bytes, Bytes new_bytes,
                                     const Hashers& hashers) const {
  if (hashers.old_bytes != nullptr) hashers.old_bytes->update(old_bytes);
  if (hashers.new_bytes != nullptr) hashers.new_bytes->update(new_bytes);
  return encode(layout, old_bytes, new_bytes, nullptr);
}

Status Codec::apply_hashed(Layout layout, Bytes payload, MutableBytes data, Hasher* patched) const {
  DW_RETURN_IF_ERROR(apply(layout, payload, data, nullptr));
  patched->update(data);
  return {};
}

}  // namespace deltawire

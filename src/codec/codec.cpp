#include "codec/codec.h"

namespace deltawire {

Result<Encoded> Codec::encode_followed(Layout layout, Bytes old_bytes, Bytes new_bytes,
                                       const Followers& followers) const {
  if (followers.old_bytes != nullptr) followers.old_bytes->update(old_bytes);
  if (followers.new_bytes != nullptr) followers.new_bytes->update(new_bytes);
  return encode(layout, old_bytes, new_bytes, nullptr);
}

Status Codec::apply_followed(Layout layout, Bytes payload, MutableBytes data,
                             Hasher* patched) const {
  DW_RETURN_IF_ERROR(apply(layout, payload, data, nullptr));
  patched->update(data);
  return {};
}

}  // namespace deltawire

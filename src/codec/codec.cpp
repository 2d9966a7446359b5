#include "codec/codec.h"

#include "digest/parallel.h"

namespace deltawire {

Result<Encoded> Codec::encode_hashed(Layout layout, Bytes old_bytes, Bytes new_bytes,
                                     const Hashers& hashers, ThreadPool* pool) const {
  if (hashers.old_bytes != nullptr) update_all(hashers.old_bytes, old_bytes, pool);
  if (hashers.new_bytes != nullptr) update_all(hashers.new_bytes, new_bytes, pool);
  return encode(layout, old_bytes, new_bytes, pool);
}

Status Codec::apply_hashed(Layout layout, Bytes payload, MutableBytes data, Hasher* patched,
                           ThreadPool* pool) const {
  DW_RETURN_IF_ERROR(apply(layout, payload, data, pool));
  update_all(patched, data, pool);
  return {};
}

Result<Changes> Codec::decode_summed(Layout layout, Bytes payload, Bytes old_bytes,
                                     ThreadPool* pool, Sums* sums) const {
  *sums = sums_of(old_bytes, 0, pool);
  return decode(layout, payload, old_bytes, pool);
}

}  // namespace deltawire

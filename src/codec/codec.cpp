#include "codec/codec.h"

#include <array>

#include "codec/regions.h"
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

Status Codec::apply_to_regions(Layout layout, size_t n, Bytes payload,
                               std::span<const Region> regions, const ReadOld& read_old,
                               ThreadPool* pool) const {
  DW_ASSIGN_OR_RETURN(const RegionSet held, RegionSet::of(layout, n, regions));
  if (n == 0 || (payload.empty() && reads_old())) return {};
  const size_t columns = layout.columns == 0 ? n : layout.columns;
  const Tile all{0, n / columns, columns};
  const Region* const whole = held.holder(all);
  if (whole != nullptr && (all.rows == 1 || whole->stride == ptrdiff_t(columns * layout.width))) {
    return apply(layout, payload, {whole->data, n * layout.width}, pool);
  }
  std::vector<uint8_t> array(n * layout.width);
  const ReadOld nothing = [](size_t, MutableBytes) -> Status { return {}; };
  DW_RETURN_IF_ERROR(held.gather(all, reads_old() ? read_old : nothing, array.data()));
  DW_RETURN_IF_ERROR(apply(layout, payload, array, pool));
  held.scatter(all, array.data());
  return {};
}

uint64_t Codec::front_bytes(Layout, size_t) const { return 0; }

Result<std::vector<ByteRange>> Codec::wanted_bytes(Layout layout, size_t n, Bytes,
                                                   uint64_t payload_bytes,
                                                   std::span<const Region> regions,
                                                   uint64_t) const {
  DW_RETURN_IF_ERROR(RegionSet::of(layout, n, regions).status());
  std::vector<ByteRange> all;
  if (payload_bytes != 0 && !regions.empty()) all.push_back({0, payload_bytes});
  return all;
}

// Every codec by its id and its name.
std::span<const Codec* const> all_codecs() noexcept {
  static const std::array<const Codec*, 5> codecs = {
      &raw_codec(), &gaps_codec(), &tight_codec(), &exponents_codec(), &adaptive_codec(),
  };
  return codecs;
}

const Codec* find_codec(CodecId id) noexcept {
  for (const Codec* codec : all_codecs()) {
    if (codec->id() == id) return codec;
  }
  return nullptr;
}

const Codec* find_codec(std::string_view name) noexcept {
  for (const Codec* codec : all_codecs()) {
    if (codec->name() == name) return codec;
  }
  return nullptr;
}

}  // namespace deltawire

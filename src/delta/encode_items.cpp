#include "delta/encode_items.h"

#include <algorithm>

#include "base/guard.h"
#include "base/mapping.h"
#include "base/spare_vectors.h"
#include "base/waves.h"
#include "codec/choose.h"
#include "digest/parallel.h"
#include "format/layout.h"
#include "format/tensor_digest.h"
#include "store/bodies.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

constexpr uint64_t kCopiedPieceBytes = uint64_t{4} << 20;

Status copy(Bytes from, const Body* contents, uint64_t begin, MutableBytes to, ThreadPool* pool) {
  const size_t pieces = size_t((to.size() + kCopiedPieceBytes - 1) / kCopiedPieceBytes);
  return parallel_try("copying tensors", pool, pieces, [&](size_t i, unsigned) -> Status {
    const uint64_t at = i * kCopiedPieceBytes, size = std::min(kCopiedPieceBytes, to.size() - at);
    if (contents != nullptr) return contents->read(begin + at, to.subspan(at, size));
    copy_out(from.data() + at, to.data() + at, size);
    return {};
  });
}

// An item with its own copy of its bytes.
struct ItemCopy {
  EncodeItem item;
  std::vector<uint8_t> new_bytes = {}, old_bytes = {};

  // Copies the new bytes and, with `copy_old`, the old ones.
  Status fill(bool copy_old, SpareVectors* spare, ThreadPool* pool) {
    TensorChange& change = item.change;
    new_bytes = spare->take(item.size_bytes());
    DW_RETURN_IF_ERROR(
        copy(change.new_bytes, item.new_contents.get(), item.begin, new_bytes, pool));
    change.new_bytes = new_bytes;
    if (!copy_old) return {};
    old_bytes = spare->take(change.old_bytes.size());
    DW_RETURN_IF_ERROR(copy(change.old_bytes, nullptr, 0, old_bytes, pool));
    change.old_bytes = old_bytes;
    return {};
  }
};

Result<const Codec*> codec_named(const std::string& name) {
  if (name == "auto") return nullptr;
  const Codec* codec = find_codec(name);
  if (codec != nullptr) return codec;
  std::string known = "auto";
  for (const Codec* one : all_codecs()) known += ", " + std::string(one->name());
  return invalid_argument("codec " + quote(name) + " is not known; known: " + known);
}

Layout layout_of(const TensorChange& change) {
  return deltawire::layout_of(change.dtype, box_shape(change.box, change.shape));
}

// `hash_old`: also hash the old bytes, whether or not they changed.
Result<Choice> encode_and_hash(const EncodeItem& item, const Codec* codec, bool hash_old,
                               ThreadPool* pool, EncodedItem* out) {
  Hasher old_hasher(DigestKind::kSum128), new_hasher(DigestKind::kSum128);
  const Hashers hashers{hash_old ? &old_hasher : nullptr, &new_hasher};
  const Layout layout = layout_of(item.change);
  const Bytes before = item.change.old_bytes, after = item.change.new_bytes;
  Choice choice;
  if (codec == nullptr) {
    DW_ASSIGN_OR_RETURN(choice, encode_smallest_hashed(layout, before, after, hashers, pool));
  } else {
    choice.codec = codec->id();
    DW_ASSIGN_OR_RETURN(choice.encoded, codec->encode_hashed(layout, before, after, hashers, pool));
  }
  out->entry.new_digest = new_hasher.finish();
  if (hash_old) out->old_digest = old_hasher.finish();
  return choice;
}

// Encodes directly from the arrays, block by block, which avoids another pass through memory. None:
// a copy of the whole array is needed.
Result<std::optional<Choice>> encode_by_blocks(const EncodeItem& item, const Codec* codec,
                                               bool copy_old, bool hash_old, ThreadPool* pool,
                                               EncodedItem* out) {
  const bool only_tight = codec != nullptr && codec->id() == CodecId::kTight;
  const bool fits = (codec == nullptr || only_tight) && !item.new_contents && !item.wants_box_sums;
  std::optional<Choice> choice;
  if (!fits) return choice;
  Hasher old_hasher(DigestKind::kSum128), new_hasher(DigestKind::kSum128);
  SharedSums old_sums, new_sums;
  ChangingArrays changing{copy_old, true, nullptr, nullptr, item.begin};
  if (item.summed) {
    if (hash_old) changing.old_sums = &old_sums;
    changing.new_sums = &new_sums;
  }
  DW_ASSIGN_OR_RETURN(
      std::optional<Encoded> encoded,
      encode_changing(layout_of(item.change), item.change.old_bytes, item.change.new_bytes,
                      {hash_old ? &old_hasher : nullptr, &new_hasher}, changing, only_tight, pool));
  if (!encoded) return choice;
  out->entry.new_digest = new_hasher.finish();
  if (hash_old) out->old_digest = old_hasher.finish();
  out->old_sums = old_sums.all();
  out->new_sums = new_sums.all();
  return std::optional(Choice{CodecId::kTight, std::move(*encoded)});
}

Status encode_whole(const EncodeItem& item, const Codec* codec, ThreadPool* pool,
                    EncodedItem* out) {
  const TensorChange& change = item.change;
  out->entry.codec = CodecId::kRaw;
  out->entry.num_changed = item.size_bytes() / layout_of(change).width;
  out->changed = true;
  if (item.new_contents != nullptr) {
    DW_ASSIGN_OR_RETURN(out->entry.new_digest,
                        digest_of_body(DigestKind::kSum128, *item.new_contents));
    return {};
  }
  // Uses a copy, because somebody may write to the original.
  const std::vector<uint8_t> bytes(change.new_bytes.begin(), change.new_bytes.end());
  out->entry.new_digest = sum128_of(bytes, pool);
  DW_ASSIGN_OR_RETURN(Choice choice,
                      encode_whole_array(layout_of(change), bytes,
                                         codec != nullptr && codec->id() == CodecId::kRaw, pool));
  out->entry.codec = choice.codec;
  out->payload = std::move(choice.encoded.payload);
  return {};
}

Status encode_item(const EncodeItem& given, const Codec* codec, const EncodeOptions& options,
                   SpareVectors* spare, ThreadPool* pool, EncodedItem* out) {
  DeltaEntry& entry = out->entry;
  entry.tensor = given.change.name;
  entry.dtype = given.change.dtype;
  entry.shape = given.change.shape;
  entry.box = given.change.box;
  if (!given.comparable) return encode_whole(given, codec, pool, out);
  const bool all = options.hashing == Hashing::kAll;
  const bool check = given.old_digest && options.hashing == Hashing::kChecked;
  const bool hash_old = all || check || !given.old_digest;
  const bool copy_old = options.hashing != Hashing::kChanged;
  DW_ASSIGN_OR_RETURN(std::optional<Choice> choice,
                      encode_by_blocks(given, codec, copy_old, hash_old, pool, out));
  if (!choice) {
    ItemCopy copy{given};
    DW_RETURN_IF_ERROR(copy.fill(copy_old, spare, pool));
    const EncodeItem& item = copy.item;
    DW_ASSIGN_OR_RETURN(choice, encode_and_hash(item, codec, hash_old, pool, out));
    if (item.summed) {
      if (hash_old) out->old_sums = sums_of(item.change.old_bytes, item.begin, pool);
      out->new_sums = sums_of(item.change.new_bytes, item.begin, pool);
    }
    if (item.wants_box_sums && (item.summed || choice->encoded.num_changed != 0)) {
      const BoxRows rows(entry.box, entry.dtype, entry.shape);
      DW_ASSIGN_OR_RETURN(out->box_sums, sums_of_box(rows, item.change.new_bytes, pool));
    }
    spare->give_back(std::move(copy.new_bytes));
    spare->give_back(std::move(copy.old_bytes));
  }
  entry.codec = choice->codec;
  entry.num_changed = choice->encoded.num_changed;
  out->payload = std::move(choice->encoded.payload);
  out->changed = entry.num_changed != 0;
  // Checked for unchanged items, too: after a crash the old bytes may be wrong and equal by chance.
  if (check) DW_RETURN_IF_ERROR(check_old_digest(*given.old_digest, out->old_digest));
  if (!all && given.old_digest) {
    out->old_digest = *given.old_digest;
    if (!out->changed) entry.new_digest = *given.old_digest;
  }
  entry.old_digest = out->old_digest;
  return {};
}

}  // namespace

Status check_old_digest(const Digest& expected, const Digest& got) {
  if (got == expected) return {};
  return base_mismatch(std::string(digest_name(got.kind)) +
                       " of what it is compared with: expected " + expected.hex() + ", got " +
                       got.hex());
}

Status check_codec(const std::string& codec) { return codec_named(codec).status(); }

Status encode_items(const std::vector<EncodeItem>& items, const EncodeOptions& options,
                    ThreadPool* pool,
                    const std::function<Status(size_t item, EncodedItem outcome)>& take) {
  DW_ASSIGN_OR_RETURN(const Codec* const codec, codec_named(options.codec));
  std::vector<uint64_t> sizes;
  for (const EncodeItem& item : items) sizes.push_back(item.size_bytes());
  std::vector<std::optional<EncodedItem>> outcomes(items.size());
  SpareVectors spare(std::min(options.wave_bytes, Waves::largest(pool)));
  return Waves(std::move(sizes), Waves::Inside::kShared, pool, options.progress, options.wave_bytes)
      .run(
          [&](size_t i, ThreadPool* inner) {
            outcomes[i].emplace();
            return encode_item(items[i], codec, options, &spare, inner, &*outcomes[i])
                .at("tensor " + quote(items[i].change.name));
          },
          [&](size_t i) -> Status {
            EncodedItem outcome = std::move(*outcomes[i]);
            outcomes[i].reset();
            return take(i, std::move(outcome));
          });
}

}  // namespace deltawire

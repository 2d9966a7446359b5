#include "sync/delta/encode_items.h"

#include "codec/choose.h"
#include "format/layout.h"
#include "format/state_digest.h"
#include "sync/waves.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

Result<const Codec*> codec_named(const std::string& name) {
  if (name == "auto") return nullptr;
  const Codec* codec = find_codec(name);
  if (codec != nullptr) return codec;
  std::string known = "auto";
  for (const Codec* one : all_codecs()) known += ", " + std::string(one->name());
  return invalid_argument("codec " + quote(name) + " is not known; known: " + known);
}

Result<Choice> encode_change(const TensorChange& change, const Codec* codec, ThreadPool* pool) {
  const Layout layout = layout_of(change.dtype);
  if (codec == nullptr) return encode_smallest(layout, change.old_bytes, change.new_bytes, pool);
  Choice choice;
  choice.codec = codec->id();
  DW_ASSIGN_OR_RETURN(choice.encoded,
                      codec->encode(layout, change.old_bytes, change.new_bytes, pool));
  return choice;
}

Result<Choice> encode_followed(const TensorChange& change, const Codec* codec,
                               const Followers& followers) {
  const Layout layout = layout_of(change.dtype);
  const Bytes before = change.old_bytes, after = change.new_bytes;
  if (codec == nullptr) return encode_smallest_followed(layout, before, after, followers);
  Choice choice;
  choice.codec = codec->id();
  DW_ASSIGN_OR_RETURN(choice.encoded, codec->encode_followed(layout, before, after, followers));
  return choice;
}

// Old and new are hashed by two threads when the item has the pool to itself.
void hash_item(const EncodeItem& item, DigestKind kind, bool old_too, ThreadPool* pool,
               EncodedItem* out) {
  parallel_for(pool, old_too ? 2 : 1, [&](size_t which, unsigned) {
    const Bytes bytes = which == 0 ? item.change.new_bytes : item.change.old_bytes;
    const Digest digest = digest_of(kind, bytes);
    (which == 0 ? out->entry.new_digest : out->old_digest) = digest;
    (which == 0 ? out->new_state : out->old_state) = tensor_state_digest(digest, bytes);
  });
}

// On one thread hashing rides along with encoding. `hash_unchanged`: digests are wanted whether or
// not there was a change.
Result<Choice> encode_and_hash(const EncodeItem& item, const Codec* codec, DigestKind kind,
                               bool hash_old, bool hash_unchanged, ThreadPool* pool,
                               EncodedItem* out) {
  if (pool != nullptr) {
    DW_ASSIGN_OR_RETURN(Choice choice, encode_change(item.change, codec, pool));
    if (hash_unchanged || choice.encoded.num_changed != 0) {
      hash_item(item, kind, hash_old, pool, out);
    }
    return choice;
  }
  Hasher old_hasher(kind), new_hasher(kind);
  DW_ASSIGN_OR_RETURN(
      Choice choice,
      encode_followed(item.change, codec, {hash_old ? &old_hasher : nullptr, &new_hasher}));
  out->entry.new_digest = new_hasher.finish();
  out->new_state = tensor_state_digest(out->entry.new_digest, item.change.new_bytes);
  if (hash_old) {
    out->old_digest = old_hasher.finish();
    out->old_state = tensor_state_digest(out->old_digest, item.change.old_bytes);
  }
  return choice;
}

Status check_old(const EncodeItem& item, const EncodedItem& outcome) {
  if (outcome.old_digest == *item.old_digest) return {};
  return base_mismatch(std::string(digest_name(outcome.old_digest.kind)) +
                       " of what it is compared with: expected " + item.old_digest->hex() +
                       ", got " + outcome.old_digest.hex());
}

Status encode_item(const EncodeItem& item, const Codec* codec, const EncodeOptions& options,
                   ThreadPool* pool, EncodedItem* out);

// Of an item whose new bytes have to be made.
Status make_and_encode(EncodeItem item, const Codec* codec, const EncodeOptions& options,
                       ThreadPool* pool, EncodedItem* out) {
  return guard_memory([&]() -> Status {
    std::vector<uint8_t> made(item.made_bytes);
    item.make(made);
    item.make = nullptr;
    item.change.new_bytes = made;
    DW_RETURN_IF_ERROR(encode_item(item, codec, options, pool, out));
    if (!item.comparable) out->payload = std::move(made);
    return {};
  });
}

Status encode_item(const EncodeItem& item, const Codec* codec, const EncodeOptions& options,
                   ThreadPool* pool, EncodedItem* out) {
  if (item.make) return make_and_encode(item, codec, options, pool, out);
  const TensorChange& change = item.change;
  DeltaEntry& entry = out->entry;
  entry.tensor = change.name;
  entry.dtype = change.dtype;
  entry.shape = change.shape;
  entry.box = change.box;
  if (!item.comparable) {
    hash_item(item, options.digest, false, pool, out);
    entry.codec = CodecId::kRaw;
    entry.num_changed = change.new_bytes.size() / layout_of(change.dtype).width;
    out->changed = true;
    return {};
  }
  const bool all = options.hashing == Hashing::kAll;
  const bool check = item.old_digest && options.hashing == Hashing::kChecked;
  DW_ASSIGN_OR_RETURN(Choice choice,
                      encode_and_hash(item, codec, options.digest, all || check || !item.old_digest,
                                      all, pool, out));
  entry.codec = choice.codec;
  entry.num_changed = choice.encoded.num_changed;
  out->payload = std::move(choice.encoded.payload);
  out->changed = entry.num_changed != 0;
  if (check && out->changed) DW_RETURN_IF_ERROR(check_old(item, *out));
  if (!all && item.old_digest) {
    out->old_digest = *item.old_digest;
    if (!out->changed) entry.new_digest = *item.old_digest;
  }
  entry.old_digest = out->old_digest;
  return {};
}

}  // namespace

Status check_encode_options(const std::string& codec, DigestKind digest) {
  DW_RETURN_IF_ERROR(codec_named(codec).status());
  if (digest_available(digest)) return {};
  return unsupported("this build has no " + std::string(digest_name(digest)));
}

Status encode_items(const std::vector<EncodeItem>& items, const EncodeOptions& options,
                    ThreadPool* pool,
                    const std::function<Status(size_t item, EncodedItem outcome)>& take) {
  DW_RETURN_IF_ERROR(check_encode_options(options.codec, options.digest));
  const Codec* const codec = *codec_named(options.codec);
  std::vector<uint64_t> sizes;
  for (const EncodeItem& item : items) sizes.push_back(item.size_bytes());
  std::vector<std::optional<EncodedItem>> outcomes(items.size());
  return Waves(std::move(sizes), Waves::Inside::kShared, pool, options.progress, options.wave_bytes)
      .run(
          [&](size_t i, ThreadPool* inner) {
            outcomes[i].emplace();
            return encode_item(items[i], codec, options, inner, &*outcomes[i])
                .at("tensor " + quote(items[i].change.name));
          },
          [&](size_t i) -> Status {
            EncodedItem outcome = std::move(*outcomes[i]);
            outcomes[i].reset();
            return take(i, std::move(outcome));
          });
}

}  // namespace deltawire

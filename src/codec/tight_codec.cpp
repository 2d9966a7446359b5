// `tight`: positions coded inside classes of the old exponent, values as steps given the old
// exponent. docs/format.md has the layout; this file puts the blocks of an array together.
#include <algorithm>
#include <bit>
#include <memory>
#include <numeric>

#include "base/guard.h"
#include "base/mapping.h"
#include "codec/changes.h"
#include "codec/checks.h"
#include "codec/codec.h"
#include "codec/elements.h"
#include "codec/leb128.h"
#include "codec/tight_encode.h"
#include "codec/tight_payload.h"
#include "codec/tight_sample.h"
#include "digest/parallel.h"

namespace deltawire {
namespace tight {
namespace {

template <class T>
class Encoder {
 public:
  Encoder(Layout layout, Bytes old_bytes, Bytes new_bytes, ThreadPool* pool, Hashers hashers,
          const ChangingArrays& changing)
      : layout_(layout),
        old_(old_bytes),
        new_(new_bytes),
        pool_(pool),
        hashers_(hashers),
        changing_(changing),
        n_(old_bytes.size() / sizeof(T)) {}

  Result<Encoded> run() {
    const KeyStats keys = sample_keys(layout_, old_, new_, changing_.any());
    DW_ASSIGN_OR_RETURN(Encoded best, encode_fitted(keys));
    hashers_ = {};  // they have seen it all
    // Where tables could cost more than they save, the model without any gets its chance.
    if (num_blocks() == 1 && best.num_changed != 0 && best.num_changed < kSmall) {
      DW_ASSIGN_OR_RETURN(Encoded plain, encode_law(keys, {}));
      if (plain.payload.size() < best.payload.size()) return plain;
    }
    return best;
  }

 private:
  static constexpr uint64_t kSmall = 4096;

  size_t num_blocks() const { return num_blocks_of(n_, kBlockLog2); }
  size_t block_start(size_t block) const { return block << kBlockLog2; }
  size_t block_size(size_t block) const {
    return std::min(size_t{1} << kBlockLog2, n_ - block_start(block));
  }

  void collect(const KeySplit& split, size_t block, BlockChanges<T>* out) const {
    const size_t at = block_start(block) * sizeof(T), size = block_size(block) * sizeof(T);
    Bytes before = old_.subspan(at, size), after = new_.subspan(at, size);
    if (changing_.any()) {
      BlockCopies& copies = thread_scratch<BlockCopies>();
      if (changing_.old_bytes) before = copy_of(before, &copies.old_bytes);
      if (changing_.new_bytes) after = copy_of(after, &copies.new_bytes);
      hash_copies(before, after, at);
    }
    encode_ops<T>().collect(split, before.data(), after.data(), block_size(block),
                            &thread_scratch<CollectScratch>(), out);
  }

  struct BlockCopies {
    std::vector<uint8_t> old_bytes, new_bytes;
  };
  static Bytes copy_of(Bytes bytes, std::vector<uint8_t>* to) {
    if (to->size() < bytes.size()) to->resize(bytes.size());
    copy_out(bytes.data(), to->data(), bytes.size());
    return {to->data(), bytes.size()};
  }
  // Now or never: what is there later may be something else.
  void hash_copies(Bytes before, Bytes after, size_t at) const {
    if (hashers_.old_bytes != nullptr) hashers_.old_bytes->update_at(before, at);
    if (hashers_.new_bytes != nullptr) hashers_.new_bytes->update_at(after, at);
    if (changing_.old_sums != nullptr) changing_.old_sums->add(before, changing_.begin + at);
    if (changing_.new_sums != nullptr) changing_.new_sums->add(after, changing_.begin + at);
  }

  // A block that has just been scanned is still in cache.
  void update_hashers(size_t block) const {
    if (changing_.any()) return;  // done
    const size_t at = block_start(block) * sizeof(T), size = block_size(block) * sizeof(T);
    if (hashers_.old_bytes != nullptr) hashers_.old_bytes->update_at(old_.subspan(at, size), at);
    if (hashers_.new_bytes != nullptr) hashers_.new_bytes->update_at(new_.subspan(at, size), at);
  }

  // A few evenly spaced blocks are collected first, the tables fitted to them, then all are coded.
  Result<Encoded> encode_fitted(const KeyStats& keys) {
    const KeySplit split(fit_split(keys, layout_, n_));
    const std::vector<size_t> blocks = sampled_blocks(n_);
    const size_t num_sampled = blocks.size();
    std::vector<BlockChanges<T>> sampled(num_sampled);
    DW_RETURN_IF_ERROR(
        parallel_try("encoding", pool_, num_sampled, [&](size_t i, unsigned) -> Status {
          collect(split, blocks[i], &sampled[i]);
          return {};
        }));
    ClassStats classes;
    const auto values = std::make_unique<ValueStats>();
    uint64_t total = 0;
    for (size_t i = 0; i < num_sampled; ++i) {
      for (size_t c = 0; c < kMaxClasses; ++c) {
        classes.population[c] += sampled[i].population[c];
        classes.changed[c] += sampled[i].count[c];
      }
      classes.num_elements += block_size(blocks[i]);
      encode_ops<T>().count_values(sampled[i], split.split, values.get());
      total += sampled[i].total;
    }
    if (total == 0) return encode_law(keys, blocks);

    const auto coder = std::make_unique<Coder>();
    coder->build(fit_model(split.split, classes, *values, layout_, n_), layout_.width);
    return encode_blocks(*coder, [&](size_t block, BlockChanges<T>* own) -> const BlockChanges<T>& {
      for (size_t i = 0; i < num_sampled; ++i) {
        if (blocks[i] == block) return sampled[i];
      }
      collect(split, block, own);
      return *own;
    });
  }

  // `unchanged`: blocks that need not be looked at again.
  Result<Encoded> encode_law(const KeyStats& keys, const std::vector<size_t>& unchanged) {
    const auto coder = std::make_unique<Coder>();
    coder->build(fit_law(keys, layout_, n_), layout_.width);
    const KeySplit split(coder->model.split);
    static const BlockChanges<T> kNone;
    return encode_blocks(*coder, [&](size_t block, BlockChanges<T>* own) -> const BlockChanges<T>& {
      if (std::find(unchanged.begin(), unchanged.end(), block) != unchanged.end()) return kNone;
      collect(split, block, own);
      return *own;
    });
  }

  template <class ChangesOf>
  Result<Encoded> encode_blocks(const Coder& coder, const ChangesOf& changes_of) {
    std::vector<std::vector<uint8_t>> blocks(num_blocks());
    std::vector<uint32_t> changed(num_blocks());
    const BlockRanges ranges(num_blocks(), pool_);
    DW_RETURN_IF_ERROR(
        parallel_try("encoding", pool_, ranges.count, [&](size_t range, unsigned) -> Status {
          const size_t end = std::min(ranges.num_blocks, (range + 1) * ranges.length);
          const size_t end_byte = (block_start(end - 1) + block_size(end - 1)) * sizeof(T);
          for (size_t block = range * ranges.length; block < end; ++block) {
            const BlockChanges<T>& changes = changes_of(block, &thread_scratch<BlockChanges<T>>());
            update_hashers(block);
            const size_t next_byte = (block_start(block) + block_size(block)) * sizeof(T);
            Prefetcher ahead;
            if (!changing_.any()) {
              ahead = Prefetcher(old_.data() + next_byte, old_.data() + end_byte,
                                 new_.data() + next_byte);
            }
            encode_ops<T>().code(coder, changes, block_size(block), ahead,
                                 &thread_scratch<CodeScratch>(), &blocks[block]);
            changed[block] = changes.total;
          }
          return {};
        }));

    Encoded out;
    for (const uint32_t count : changed) out.num_changed += count;
    if (out.num_changed == 0) return out;
    std::vector<uint8_t> head_buffer(kMaxModelBytes + 16);
    BitWriter head(head_buffer.data());
    write_model(coder.model, layout_.width, &head);
    size_t size = head.bytes().size() + blocks.size() * 3;
    for (const auto& block : blocks) size += block.size();
    out.payload.reserve(size);
    out.payload.assign(head.bytes().begin(), head.bytes().end());
    for (const auto& block : blocks) put_leb128(block.size(), &out.payload);
    for (const auto& block : blocks)
      out.payload.insert(out.payload.end(), block.begin(), block.end());
    return out;
  }

  const Layout layout_;
  const Bytes old_, new_;
  ThreadPool* const pool_;
  Hashers hashers_;
  const ChangingArrays changing_;
  const size_t n_;
};

}  // namespace
}  // namespace tight

namespace {

class TightCodec final : public Codec {
 public:
  CodecId id() const noexcept override { return CodecId::kTight; }
  std::string_view name() const noexcept override { return "tight"; }

  Result<Encoded> encode(Layout layout, Bytes old_bytes, Bytes new_bytes,
                         ThreadPool* pool) const override {
    return encode_blocks(layout, old_bytes, new_bytes, pool, {}, {});
  }

  Result<Encoded> encode_hashed(Layout layout, Bytes old_bytes, Bytes new_bytes,
                                const Hashers& hashers, ThreadPool* pool) const override {
    return encode_blocks(layout, old_bytes, new_bytes, pool, hashers, {});
  }

  Status apply(Layout layout, Bytes payload, MutableBytes data, ThreadPool* pool) const override {
    return apply_blocks(layout, payload, data, pool, nullptr);
  }

  Status apply_hashed(Layout layout, Bytes payload, MutableBytes data, Hasher* patched,
                      ThreadPool* pool) const override {
    if (payload.empty()) return Codec::apply_hashed(layout, payload, data, patched, pool);
    return apply_blocks(layout, payload, data, pool, patched);
  }

  Result<Changes> decode(Layout layout, Bytes payload, Bytes old_bytes,
                         ThreadPool* pool) const override {
    return decode_blocks(layout, payload, old_bytes, pool, nullptr);
  }

  Result<Changes> decode_summed(Layout layout, Bytes payload, Bytes old_bytes, ThreadPool* pool,
                                Sums* sums) const override {
    if (payload.empty()) return Codec::decode_summed(layout, payload, old_bytes, pool, sums);
    SharedSums shared;
    auto changes = decode_blocks(layout, payload, old_bytes, pool, &shared);
    *sums = shared.all();
    return changes;
  }

  static Result<Encoded> encode_blocks(Layout layout, Bytes old_bytes, Bytes new_bytes,
                                       ThreadPool* pool, const Hashers& hashers,
                                       const ChangingArrays& changing) {
    DW_RETURN_IF_ERROR(check_arrays(layout, old_bytes, new_bytes));
    if (old_bytes.empty()) return Encoded{};
    return with_element(layout.width, [&](auto element) {
      return tight::Encoder<decltype(element)>(layout, old_bytes, new_bytes, pool, hashers,
                                               changing)
          .run();
    });
  }

 private:
  static Result<Changes> decode_blocks(Layout layout, Bytes payload, Bytes old_bytes,
                                       ThreadPool* pool, SharedSums* sums) {
    DW_RETURN_IF_ERROR(check_array(layout, old_bytes.size()));
    if (payload.empty()) return Changes{};
    return tight::decode_payload(layout, payload, old_bytes, pool, sums);
  }

  static Status apply_blocks(Layout layout, Bytes payload, MutableBytes data, ThreadPool* pool,
                             Hasher* hasher) {
    DW_RETURN_IF_ERROR(check_array(layout, data.size()));
    if (payload.empty()) return {};
    return tight::apply_payload(layout, payload, data, pool, hasher);
  }
};

}  // namespace

Result<Encoded> encode_tight_changing(Layout layout, Bytes old_bytes, Bytes new_bytes,
                                      const Hashers& hashers, const ChangingArrays& changing,
                                      ThreadPool* pool) {
  return TightCodec::encode_blocks(layout, old_bytes, new_bytes, pool, hashers, changing);
}

const Codec& tight_codec() noexcept {
  static const TightCodec kCodec;
  return kCodec;
}

}  // namespace deltawire

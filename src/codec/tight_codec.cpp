// `tight`: positions coded inside classes of the old exponent, values as steps given the old
// exponent. docs/format.md has the layout; this file puts the blocks of an array together.
#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <utility>

#include "base/guard.h"
#include "base/mapping.h"
#include "codec/checks.h"
#include "codec/codec.h"
#include "codec/elements.h"
#include "codec/tight_encode.h"
#include "codec/tight_payload.h"
#include "codec/tight_sample.h"

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
        n_(old_bytes.size() / sizeof(T)),
        shape_(choose_tiles(layout, n_)),
        tiling_(shape_, layout, n_) {}

  Result<Encoded> run() {
    const KeyStats keys = sample_keys(layout_, old_, new_, changing_.any());
    DW_ASSIGN_OR_RETURN(Encoded best, encode_fitted(keys));
    hashers_ = {};  // they have seen it all
    // Where tables could cost more than they save, the model without any gets its chance.
    if (tiling_.size() == 1 && best.num_changed != 0 && best.num_changed < kSmall) {
      sampled_.clear();
      DW_ASSIGN_OR_RETURN(Encoded plain, encode_law(keys));
      if (plain.payload.size() < best.payload.size()) return plain;
    }
    return best;
  }

 private:
  static constexpr uint64_t kSmall = 4096;

  struct Copies {
    std::vector<uint8_t> old_bytes, new_bytes;
  };

  // The rows of a stripe: where they are, or a copy.
  ScanRows rows_of(Bytes array, bool copied, const Stripe& stripe,
                   std::vector<uint8_t>* copy) const {
    const size_t stride = tiling_.stride() * sizeof(T),
                 row_bytes = stripe.shape.columns * sizeof(T);
    const uint8_t* const data = array.data() + stripe.begin * sizeof(T);
    if (!copied) return {data, ptrdiff_t(stride)};
    if (copy->size() < stripe.shape.rows * row_bytes) copy->resize(stripe.shape.rows * row_bytes);
    for (size_t row = 0; row < stripe.shape.rows; ++row) {
      copy_out(data + row * stride, copy->data() + row * row_bytes, row_bytes);
    }
    return {copy->data(), ptrdiff_t(row_bytes)};
  }

  // Sums of a group, handed on at once: rows may cut words, which wait for their other half.
  struct GroupSums {
    Hasher* hasher;
    SharedSums* shared;
    Sums hashed = {}, shared_sums = {};

    ~GroupSums() {
      if (hasher != nullptr) hasher->update_at(hashed);
      if (shared != nullptr) shared->add(shared_sums);
    }
  };

  // While they are in cache; copies now or never: what is there later may be something else.
  void hash(const ScanRows& rows, const Stripe& stripe, GroupSums* sums) const {
    if (sums->hasher == nullptr && sums->shared == nullptr) return;
    for_each_piece(tiling_, stripe, [&](size_t row, size_t begin, size_t count) {
      const Bytes bytes(static_cast<const uint8_t*>(rows.data) + ptrdiff_t(row) * rows.stride,
                        count * sizeof(T));
      const uint64_t at = begin * sizeof(T);
      if (sums->hasher != nullptr) sums->hashed.add(bytes, at);
      if (sums->shared != nullptr) sums->shared_sums.add(bytes, changing_.begin + at);
    });
  }

  Prefetcher prefetcher(const Stripe& stripe) const {
    if (changing_.any()) return {};
    const size_t at = stripe.begin * sizeof(T);
    return Prefetcher(old_.data() + at, stripe.rows_left, stripe.columns_left * sizeof(T),
                      tiling_.stride() * sizeof(T), new_.data() + at);
  }

  // Tiles that have been collected, to be coded while others are.
  struct Pending {
    std::vector<std::pair<size_t, const BlockChanges<T>*>> tiles;
    std::function<void(size_t tile, const BlockChanges<T>&, Prefetcher*)> code;
  };

  // The changes of all tiles of a group, to out[0] and so on; meanwhile `pending` is coded.
  void collect(const KeySplit& split, TileGroup group, BlockChanges<T>* out,
               Pending* pending) const {
    for (size_t i = 0; i < group.count; ++i) out[i].clear();
    Copies& copies = thread_scratch<Copies>();
    GroupSums old_sums{hashers_.old_bytes, changing_.old_sums};
    GroupSums new_sums{hashers_.new_bytes, changing_.new_sums};
    const Stripes stripes(tiling_, group, tiling_.stride(), Stripes::kTogether);
    Spread spread(pending == nullptr ? 0 : pending->tiles.size(), stripes.size());
    const auto code_due = [&](size_t step, Prefetcher ahead) {
      while (spread.due(step)) {
        const auto& [tile, changes] = pending->tiles[spread.next_unit()];
        pending->code(tile, *changes, &ahead);
      }
    };
    for (size_t i = 0; i < stripes.size(); ++i) {
      const Stripe stripe = stripes[i];
      code_due(i, prefetcher(stripe));
      const ScanRows before = rows_of(old_, changing_.old_bytes, stripe, &copies.old_bytes);
      const ScanRows after = rows_of(new_, changing_.new_bytes, stripe, &copies.new_bytes);
      hash(before, stripe, &old_sums);
      hash(after, stripe, &new_sums);
      encode_ops<T>().collect(split, before, after, stripe.shape, &thread_scratch<CollectScratch>(),
                              out);
    }
    code_due(stripes.size(), {});
    if (pending != nullptr) pending->tiles.clear();
  }

  // A few evenly spaced tiles are collected first, the tables fitted to them, then all are coded.
  Result<Encoded> encode_fitted(const KeyStats& keys) {
    const KeySplit split(fit_split(keys, layout_, n_));
    sampled_ = sampled_blocks(tiling_.size(), tiling_.tiled());
    std::vector<BlockChanges<T>> sampled(sampled_.size());
    DW_RETURN_IF_ERROR(
        parallel_try("encoding", pool_, sampled_.size(), [&](size_t i, unsigned) -> Status {
          collect(split, {sampled_[i], 1}, &sampled[i], nullptr);
          return {};
        }));
    ClassStats classes;
    const auto values = std::make_unique<ValueStats>();
    uint64_t total = 0;
    for (size_t i = 0; i < sampled.size(); ++i) {
      for (size_t c = 0; c < kMaxClasses; ++c) {
        classes.population[c] += sampled[i].population[c];
        classes.changed[c] += sampled[i].count[c];
      }
      classes.num_elements += tiling_[sampled_[i]].size();
      encode_ops<T>().count_values(sampled[i], split.split, values.get());
      total += sampled[i].total;
    }
    if (total == 0) return encode_law(keys);
    return encode_blocks(fit_model(split.split, classes, *values, layout_, n_), sampled);
  }

  // Tiles that were sampled without finding a change need not be looked at again.
  Result<Encoded> encode_law(const KeyStats& keys) {
    return encode_blocks(fit_law(keys, layout_, n_), std::vector<BlockChanges<T>>(sampled_.size()));
  }

  // `sampled`: what is known of the tiles `sampled_` already.
  Result<Encoded> encode_blocks(Model model, const std::vector<BlockChanges<T>>& sampled) {
    model.tiles = shape_;
    const auto coder = std::make_unique<Coder>();
    coder->build(model, layout_.width);
    const KeySplit split(model.split);
    std::vector<std::vector<uint8_t>> blocks(tiling_.size());
    std::vector<uint32_t> changed(tiling_.size());
    const TileGroups groups(tiling_, pool_);
    DW_RETURN_IF_ERROR(
        parallel_try("encoding", pool_, groups.num_runs(), [&](size_t run, unsigned) -> Status {
          Pending pending;
          pending.code = [&](size_t tile, const BlockChanges<T>& changes, Prefetcher* ahead) {
            encode_ops<T>().code(*coder, changes, tiling_[tile].size(), ahead,
                                 &thread_scratch<CodeScratch>(), &blocks[tile]);
            changed[tile] = changes.total;
          };
          // Two: what has been collected is coded while the next group is.
          auto& own = thread_scratch<std::array<std::array<BlockChanges<T>, kMaxScanTiles>, 2>>();
          size_t turn = 0;
          for (size_t i = groups.begin(run); i < groups.end(run); ++i) {
            const size_t end = groups.group(i).first + groups.group(i).count;
            for (size_t tile = groups.group(i).first; tile < end;) {
              const size_t known = sampled_index(tile);
              if (known != sampled_.size()) {
                pending.tiles.emplace_back(tile++, &sampled[known]);
                continue;
              }
              size_t next = tile + 1;
              while (next < end && sampled_index(next) == sampled_.size()) ++next;
              collect(split, {tile, next - tile}, own[turn].data(), &pending);
              for (size_t k = 0; tile < next; ++k, ++tile) {
                pending.tiles.emplace_back(tile, &own[turn][k]);
              }
              turn ^= 1;
            }
          }
          for (Prefetcher none; const auto& [tile, changes] : pending.tiles) {
            pending.code(tile, *changes, &none);
          }
          return {};
        }));

    Encoded out;
    for (const uint32_t count : changed) out.num_changed += count;
    if (out.num_changed == 0) return out;
    std::vector<uint8_t> head_buffer(kMaxModelBytes + 16);
    BitWriter head(head_buffer.data());
    write_model(model, layout_.width, &head);
    out.payload.assign(head.bytes().begin(), head.bytes().end());
    put_directory(blocks, &out.payload);
    return out;
  }

  size_t sampled_index(size_t tile) const {
    return size_t(std::find(sampled_.begin(), sampled_.end(), tile) - sampled_.begin());
  }

  const Layout layout_;
  const Bytes old_, new_;
  ThreadPool* const pool_;
  Hashers hashers_;
  const ChangingArrays changing_;
  const size_t n_;
  const TileShape shape_;
  const Tiling tiling_;
  std::vector<size_t> sampled_;  // tiles
};

}  // namespace
}  // namespace tight

namespace {

class TightCodec final : public Codec {
 public:
  CodecId id() const noexcept override { return CodecId::kTight; }
  std::string_view name() const noexcept override { return "tight"; }
  bool reads_old() const noexcept override { return true; }

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

  Status apply_to_regions(Layout layout, size_t n, Bytes payload, std::span<const Region> regions,
                          const ReadOld& read_old, ThreadPool* pool) const override {
    DW_ASSIGN_OR_RETURN(const RegionSet held, RegionSet::of(layout, n, regions));
    if (payload.empty()) return {};
    size_t consumed = 0;
    DW_ASSIGN_OR_RETURN(const tight::Model model, tight::read_model(layout, payload, &consumed));
    if (!model.tiles.tiled()) {  // a block holds rows of several regions
      return Codec::apply_to_regions(layout, n, payload, regions, read_old, pool);
    }
    return tight::apply_to_regions(layout, n, payload, held, read_old, pool);
  }

  uint64_t front_bytes(Layout layout, size_t n) const override {
    return tight::kMaxModelBytes + 4 * Tiling(choose_tiles(layout, n), layout, n).size();
  }

  Result<std::vector<ByteRange>> wanted_bytes(Layout layout, size_t n, Bytes front,
                                              uint64_t payload_bytes,
                                              std::span<const Region> regions,
                                              uint64_t gap) const override {
    DW_ASSIGN_OR_RETURN(const RegionSet held, RegionSet::of(layout, n, regions));
    if (payload_bytes == 0 || regions.empty()) return std::vector<ByteRange>();
    return tight::wanted_bytes(layout, n, front, payload_bytes, held, gap);
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

// `tight`: positions coded inside classes of the old exponent, values as steps given the old
// exponent. docs/format.md has the layout; this file puts the blocks of an array together.
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <numeric>

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
        tiling_(shape_, layout, n_),
        keys_(sample_keys(layout, old_bytes, new_bytes, changing.any())),
        groups_(tiling_, pool, is_dense(keys_) ? 1 : kTogether) {}

  Result<Encoded> run() {
    DW_ASSIGN_OR_RETURN(Encoded best, encode_fitted());
    hashers_ = {};  // they have seen it all
    // Where tables could cost more than they save, the model without any gets its chance.
    if (tiling_.size() == 1 && best.num_changed != 0 && best.num_changed < kSmall) {
      DW_ASSIGN_OR_RETURN(Encoded plain, encode_law());
      if (plain.payload.size() < best.payload.size()) return plain;
    }
    return best;
  }

 private:
  static constexpr uint64_t kSmall = 4096;
  static constexpr size_t kTogether = 8;  // tiles to a group: each has eight lists of changes

  // Changes of groups are held until the tables are fitted: of dense ones, as few as can be.
  static bool is_dense(const KeyStats& keys) {
    return std::accumulate(std::begin(keys.changed), std::end(keys.changed), uint64_t{0}) >
           keys.num_elements / 8;
  }

  using KnownGroups = std::map<size_t, std::vector<BlockChanges<T>>>;  // by number

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

  // The changes of a group, to out[0] and so on; meanwhile code(unit, ahead) for each unit of
  // `work`.
  template <class Code>
  void collect(const KeySplit& split, TileGroup group, bool hashed, BlockChanges<T>* out,
               size_t work, const Code& code) const {
    for (size_t i = 0; i < group.count; ++i) out[i].clear();
    Copies& copies = thread_scratch<Copies>();
    GroupSums old_sums{hashed ? hashers_.old_bytes : nullptr,
                       hashed ? changing_.old_sums : nullptr};
    GroupSums new_sums{hashed ? hashers_.new_bytes : nullptr,
                       hashed ? changing_.new_sums : nullptr};
    const Stripes stripes(tiling_, group, tiling_.stride(), Stripes::kTogether);
    Spread spread(work, stripes.size());
    for (size_t i = 0; i < stripes.size(); ++i) {
      const Stripe stripe = stripes[i];
      for (Prefetcher ahead = prefetcher(stripe); spread.due(i);) code(spread.next_unit(), &ahead);
      const ScanRows before = rows_of(old_, changing_.old_bytes, stripe, &copies.old_bytes);
      const ScanRows after = rows_of(new_, changing_.new_bytes, stripe, &copies.new_bytes);
      hash(before, stripe, &old_sums);
      hash(after, stripe, &new_sums);
      encode_ops<T>().collect(split, before, after, stripe.shape,
                              &thread_scratch<CollectScratch<T>>(), out);
    }
    for (Prefetcher none; spread.due(stripes.size());) code(spread.next_unit(), &none);
  }

  // A few evenly spaced tiles are collected first, the tables fitted to them, then all are coded.
  // Tiles that a thread scans together are collected together, so that none is scanned twice.
  Result<Encoded> encode_fitted() {
    const KeySplit split(fit_split(keys_, layout_, n_));
    const std::vector<size_t> sampled = sampled_blocks(tiling_.size(), tiling_.tiled());
    for (const size_t tile : sampled) known_[groups_.group_of(tile)] = {};
    std::vector<typename KnownGroups::value_type*> known;
    for (auto& group : known_) known.push_back(&group);
    DW_RETURN_IF_ERROR(
        parallel_try("encoding", pool_, known.size(), [&](size_t i, unsigned) -> Status {
          const TileGroup group = groups_.group(known[i]->first);
          known[i]->second = std::vector<BlockChanges<T>>(group.count);
          collect(split, group, true, known[i]->second.data(), 0, [](size_t, Prefetcher*) {});
          return {};
        }));
    ClassStats classes;
    const auto values = std::make_unique<ValueStats>();
    uint64_t total = 0;
    for (const size_t tile : sampled) {
      const size_t number = groups_.group_of(tile);
      const BlockChanges<T>& changes = known_.at(number)[tile - groups_.group(number).first];
      for (size_t c = 0; c < kMaxClasses; ++c) {
        classes.population[c] += changes.population[c];
        classes.changed[c] += changes.count(c);
      }
      classes.num_elements += tiling_[tile].size();
      encode_ops<T>().count_values(changes, split.split, values.get());
      total += changes.total();
    }
    if (total == 0) return encode_law();
    return encode_blocks(fit_model(split.split, classes, *values, layout_, n_));
  }

  Result<Encoded> encode_law() {
    // What was found has other classes now; where nothing was, nothing will be.
    for (auto& [number, tiles] : known_) {
      if (std::any_of(tiles.begin(), tiles.end(), [](const auto& t) { return t.total() != 0; })) {
        tiles.clear();
      }
    }
    return encode_blocks(fit_law(keys_, layout_, n_));
  }

  Result<Encoded> encode_blocks(Model model) {
    model.tiles = shape_;
    const auto coder = std::make_unique<Coder>();
    coder->build(model, layout_.width);
    const KeySplit split(model.split);
    std::vector<std::vector<uint8_t>> blocks(tiling_.size());
    std::vector<uint32_t> changed(tiling_.size());
    DW_RETURN_IF_ERROR(
        parallel_try("encoding", pool_, groups_.num_runs(), [&](size_t run, unsigned) -> Status {
          auto& own = thread_scratch<std::array<std::array<BlockChanges<T>, kTogether>, 2>>();
          TileGroup pending{0, 0};  // coded while the next is scanned
          const BlockChanges<T>* changes = nullptr;
          const auto code = [&](size_t k, Prefetcher* ahead) {
            const size_t tile = pending.first + k;
            encode_ops<T>().code(*coder, changes[k], tiling_[tile].size(), ahead,
                                 &thread_scratch<CodeScratch>(), &blocks[tile]);
            changed[tile] = changes[k].total();
          };
          const auto code_all = [&](Prefetcher none = {}) {
            for (size_t k = 0; k < pending.count; ++k) code(k, &none);
          };
          for (size_t i = groups_.begin(run); i < groups_.end(run); ++i) {
            const auto known = known_.find(i);
            const bool is_new = known == known_.end(), scanned = is_new || known->second.empty();
            if (scanned) {
              collect(split, groups_.group(i), is_new, own[i % 2].data(), pending.count, code);
            } else {
              code_all();
            }
            changes = scanned ? own[i % 2].data() : known->second.data();
            pending = groups_.group(i);
          }
          code_all();
          return {};
        }));

    Encoded out;
    for (const uint32_t count : changed) out.num_changed += count;
    if (out.num_changed == 0) return out;
    out.payload = write_model(model, layout_.width);
    put_directory(blocks, &out.payload);
    return out;
  }

  const Layout layout_;
  const Bytes old_, new_;
  ThreadPool* const pool_;
  Hashers hashers_;
  const ChangingArrays changing_;
  const size_t n_;
  const TileShape shape_;
  const Tiling tiling_;
  const KeyStats keys_;
  const TileGroups groups_;
  // Of those that were sampled, which have been hashed; no changes: to be scanned again.
  KnownGroups known_;
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

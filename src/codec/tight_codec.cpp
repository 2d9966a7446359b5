// `tight`: positions coded inside classes of the old exponent, values as steps given the old
// exponent. docs/format.md has the layout; this file puts the blocks of an array together.
#include <algorithm>
#include <bit>
#include <memory>
#include <numeric>

#include "base/guard.h"
#include "codec/builtin.h"
#include "codec/changes.h"
#include "codec/checks.h"
#include "codec/elements.h"
#include "codec/leb128.h"
#include "codec/tight_decode.h"
#include "codec/tight_encode.h"
#include "codec/tight_payload.h"
#include "codec/tight_sample.h"
#include "digest/parallel.h"

namespace deltawire {
namespace tight {
namespace {

// Memory that a thread keeps from block to block and from array to array.
template <class Scratch>
Scratch& thread_scratch() {
  static thread_local const auto kScratch = std::make_unique<Scratch>();
  return *kScratch;
}

// Neighbouring blocks go to one thread in a run: it can ask for the next one's weights in time.
struct BlockRanges {
  size_t num_blocks, length, count;
  BlockRanges(size_t blocks, const ThreadPool* pool)
      : num_blocks(blocks),
        length(std::clamp<size_t>(blocks / (num_workers(pool) * 4), 1, 16)),
        count((blocks + length - 1) / length) {}
};

template <class T>
class Encoder {
 public:
  // With hashers that do not add up there is no pool: blocks are then taken in order.
  Encoder(Layout layout, Bytes old_bytes, Bytes new_bytes, ThreadPool* pool, Hashers hashers)
      : layout_(layout),
        old_(old_bytes),
        new_(new_bytes),
        pool_(pool),
        hashers_(hashers),
        n_(old_bytes.size() / sizeof(T)) {}

  Result<Encoded> run() {
    const KeyStats keys = sample_keys(layout_, old_, new_);
    DW_ASSIGN_OR_RETURN(Encoded best, encode_fitted(keys));
    hashers_ = {};  // they have seen it all
    // Where tables could cost more than they save, the model without any gets its chance.
    if (num_blocks() == 1 && best.num_changed != 0 && best.num_changed < kSmall) {
      DW_ASSIGN_OR_RETURN(Encoded plain, encode_law(keys));
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
    const size_t at = block_start(block) * sizeof(T);
    encode_ops<T>().collect(split, old_.data() + at, new_.data() + at, block_size(block),
                            &thread_scratch<CollectScratch>(), out);
  }

  // A block that has just been scanned is still in cache.
  void update_hashers(size_t block) const {
    const size_t at = block_start(block) * sizeof(T), size = block_size(block) * sizeof(T);
    if (hashers_.old_bytes != nullptr) update_stretch(hashers_.old_bytes, old_, at, size);
    if (hashers_.new_bytes != nullptr) update_stretch(hashers_.new_bytes, new_, at, size);
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
    if (total == 0) return encode_law(keys);

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

  Result<Encoded> encode_law(const KeyStats& keys) {
    const auto coder = std::make_unique<Coder>();
    coder->build(fit_law(keys, layout_, n_), layout_.width);
    const KeySplit split(coder->model.split);
    return encode_blocks(*coder, [&](size_t block, BlockChanges<T>* own) -> const BlockChanges<T>& {
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
            const Prefetcher ahead(old_.data() + next_byte, old_.data() + end_byte,
                                   new_.data() + next_byte);
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
  const size_t n_;
};

struct Parsed {
  std::unique_ptr<Coder> coder = std::make_unique<Coder>();
  std::vector<Bytes> blocks;
};

Result<Parsed> parse(Layout layout, Bytes payload, size_t n) {
  DW_ASSIGN_OR_RETURN(Payload split, split_payload(layout, payload, n));
  Parsed parsed;
  parsed.coder->build(split.model, layout.width);
  parsed.blocks = std::move(split.blocks);
  return parsed;
}

template <class T>
Status apply_blocks(Layout layout, Bytes payload, MutableBytes data, ThreadPool* pool,
                    Hasher* hasher) {
  const size_t n = data.size() / sizeof(T);
  DW_ASSIGN_OR_RETURN(const Parsed parsed, parse(layout, payload, n));
  const size_t block_elements = size_t{1} << parsed.coder->model.block_log2;
  const BlockRanges ranges(parsed.blocks.size(), pool);
  return parallel_try("decoding", pool, ranges.count, [&](size_t range, unsigned) -> Status {
    DecodeScratch& scratch = thread_scratch<DecodeScratch>();
    const size_t end = std::min(ranges.num_blocks, (range + 1) * ranges.length);
    const uint8_t* data_end = data.data() + std::min(n, end * block_elements) * sizeof(T);
    for (size_t block = range * ranges.length; block < end; ++block) {
      const size_t start = block * block_elements;
      uint8_t* const own = data.data() + start * sizeof(T);
      DW_RETURN_IF_ERROR(decode_block(sizeof(T))(*parsed.coder, parsed.blocks[block], own,
                                                 std::min(block_elements, n - start), data_end,
                                                 &scratch)
                             .at("block " + std::to_string(block)));
      kernels().scatter[width_index(sizeof(T))](own, scratch.positions.data(),
                                                scratch.values.data(), scratch.count);
      if (hasher != nullptr) {
        update_stretch(hasher, data, start * sizeof(T),
                       std::min(block_elements, n - start) * sizeof(T));
      }
    }
    return {};
  });
}

// The changes of a block lie by class; a mark per element puts them in the order of the array.
template <class T>
void put_in_order(const DecodeScratch& scratch, size_t n, ChunkChanges* out) {
  static thread_local std::vector<uint64_t> all_marks;
  static thread_local std::vector<T> all_values;
  const size_t num_words = (n + 63) / 64;
  all_marks.assign(num_words, 0);
  if (all_values.size() < n) all_values.resize(n);
  out->positions.resize(scratch.count);
  out->values.resize(scratch.count * sizeof(T));
  // Plain pointers: what is written must not make the compiler look them up again.
  uint64_t* const marks = all_marks.data();
  T* const values = all_values.data();
  const uint32_t* const positions = scratch.positions.data();
  const uint8_t* const found = scratch.values.data();
  for (uint32_t i = 0, count = scratch.count; i < count; ++i) {
    const uint32_t position = positions[i];
    marks[position / 64] |= uint64_t{1} << position % 64;
    values[position] = load_le<T>(found + i * sizeof(T));
  }
  uint32_t* to = out->positions.data();
  uint8_t* value_to = out->values.data();
  for (size_t word = 0; word < num_words; ++word) {
    for (uint64_t left = marks[word]; left != 0; left &= left - 1) {
      const uint32_t position = uint32_t(word * 64) + uint32_t(std::countr_zero(left));
      *to++ = position;
      store_le(value_to, values[position]);
      value_to += sizeof(T);
    }
  }
}

template <class T>
Result<Changes> decode_blocks(Layout layout, Bytes payload, Bytes old_bytes, ThreadPool* pool) {
  const size_t n = old_bytes.size() / sizeof(T);
  DW_ASSIGN_OR_RETURN(const Parsed parsed, parse(layout, payload, n));
  const size_t block_elements = size_t{1} << parsed.coder->model.block_log2;
  std::vector<ChunkChanges> chunks(parsed.blocks.size());
  const BlockRanges ranges(parsed.blocks.size(), pool);
  DW_RETURN_IF_ERROR(
      parallel_try("decoding", pool, ranges.count, [&](size_t range, unsigned) -> Status {
        DecodeScratch& scratch = thread_scratch<DecodeScratch>();
        const size_t end = std::min(ranges.num_blocks, (range + 1) * ranges.length);
        const uint8_t* data_end = old_bytes.data() + std::min(n, end * block_elements) * sizeof(T);
        for (size_t block = range * ranges.length; block < end; ++block) {
          const size_t start = block * block_elements;
          const size_t length = std::min(block_elements, n - start);
          DW_RETURN_IF_ERROR(decode_block(sizeof(T))(*parsed.coder, parsed.blocks[block],
                                                     old_bytes.data() + start * sizeof(T), length,
                                                     data_end, &scratch)
                                 .at("block " + std::to_string(block)));
          chunks[block].base = start;
          put_in_order<T>(scratch, length, &chunks[block]);
        }
        return {};
      }));
  return join_chunks(sizeof(T), std::move(chunks), pool);
}

}  // namespace
}  // namespace tight

namespace {

class TightCodec final : public Codec {
 public:
  CodecId id() const noexcept override { return CodecId::kTight; }
  std::string_view name() const noexcept override { return "tight"; }

  Result<Encoded> encode(Layout layout, Bytes old_bytes, Bytes new_bytes,
                         ThreadPool* pool) const override {
    return encode_blocks(layout, old_bytes, new_bytes, pool, {});
  }

  Result<Encoded> encode_hashed(Layout layout, Bytes old_bytes, Bytes new_bytes,
                                const Hashers& hashers, ThreadPool* pool) const override {
    return encode_blocks(layout, old_bytes, new_bytes, pool, hashers);
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
    return guard_memory("decoding", [&]() -> Result<Changes> {
      DW_RETURN_IF_ERROR(check_array(layout, old_bytes.size()));
      if (payload.empty()) return Changes{};
      return with_element(layout.width, [&](auto element) {
        return tight::decode_blocks<decltype(element)>(layout, payload, old_bytes, pool);
      });
    });
  }

 private:
  static Result<Encoded> encode_blocks(Layout layout, Bytes old_bytes, Bytes new_bytes,
                                       ThreadPool* pool, const Hashers& hashers) {
    return guard_memory("encoding", [&]() -> Result<Encoded> {
      DW_RETURN_IF_ERROR(check_arrays(layout, old_bytes, new_bytes));
      if (old_bytes.empty()) return Encoded{};
      return with_element(layout.width, [&](auto element) {
        return tight::Encoder<decltype(element)>(layout, old_bytes, new_bytes, pool, hashers).run();
      });
    });
  }

  static Status apply_blocks(Layout layout, Bytes payload, MutableBytes data, ThreadPool* pool,
                             Hasher* hasher) {
    return guard_memory("decoding", [&]() -> Status {
      DW_RETURN_IF_ERROR(check_array(layout, data.size()));
      if (payload.empty()) return {};
      return with_element(layout.width, [&](auto element) {
        return tight::apply_blocks<decltype(element)>(layout, payload, data, pool, hasher);
      });
    });
  }
};

}  // namespace

const Codec& tight_codec() noexcept {
  static const TightCodec kCodec;
  return kCodec;
}

}  // namespace deltawire

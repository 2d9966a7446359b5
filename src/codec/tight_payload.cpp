#include "codec/tight_payload.h"

#include <algorithm>
#include <array>
#include <bit>
#include <span>

#include "base/guard.h"
#include "codec/changes.h"
#include "codec/checks.h"
#include "codec/elements.h"
#include "codec/tight_decode.h"
#include "digest/parallel.h"
#include "kernels/kernels.h"

namespace deltawire::tight {
namespace {

bool read_count(BitReader* bits, const Model& model, int c, size_t n, uint32_t* count) {
  const unsigned ones = unsigned(std::countr_one(bits->peek()));
  if (!model.fitted) {
    if (ones > kMaxBlockLog2) return false;
    bits->skip(ones + 1);
    *count = uint32_t((uint64_t{1} << ones) + bits->get(ones) - 1);
  } else if (ones < kRiceLimit) {
    const uint32_t mean = mean_count(model.mean_codes[c], n, model.tiles.block_log2);
    const unsigned low_bits = rice_bits(mean);
    bits->skip(ones + 1);
    const uint32_t folded = uint32_t(ones) << low_bits | uint32_t(bits->get(low_bits));
    *count = (folded & 1) != 0 ? mean - (folded + 1) / 2 : mean + folded / 2;
  } else {
    bits->skip(kRiceLimit);
    *count = uint32_t(bits->get(kMaxBlockLog2 + 1));
  }
  return *count <= n;
}

}  // namespace

const char* read_block_head(const Model& model, size_t n, BitReader* in, BlockHead* head) {
  const int num_classes = model.split.num_classes;
  head->unit_classes = uint32_t(in->get(unsigned(num_classes)));
  uint32_t total = 0;
  for (int c = 0; c < int(kMaxClasses); ++c) {
    uint32_t count = 0;
    if (c < num_classes && !read_count(in, model, c, n, &count)) {
      return "a class has more changes than the block elements";
    }
    head->end[c] = total += count;
    if (total > n) return "more changes than elements";
  }
  return total == 0 ? "present, yet without changes" : nullptr;
}

Result<Payload> split_payload(Layout layout, Bytes payload, size_t n) {
  size_t consumed = 0;
  Payload parsed;
  DW_ASSIGN_OR_RETURN(parsed.model, read_model(layout, payload, &consumed));
  const TileShape shape = parsed.model.tiles;
  if (!tiles_fit(shape, layout, n)) {
    return bad_payload("tight model", "blocks of elements in order", "tiles, of what is no matrix");
  }
  DW_ASSIGN_OR_RETURN(parsed.blocks, take_directory("tight", payload.subspan(consumed),
                                                    Tiling(shape, layout, n).size()));
  return parsed;
}

namespace {

// Tiles that lie side by side, decoded together by one thread.
using OpenTiles = std::array<OpenBlock, kMaxScanTiles>;

class Decoder {
 public:
  static Result<Decoder> of(Layout layout, Bytes payload, size_t n) {
    DW_ASSIGN_OR_RETURN(Payload split, split_payload(layout, payload, n));
    return Decoder(layout, std::move(split), n);
  }

  const Tiling& tiling() const { return tiling_; }

  // Calls done(group, tiles) for all groups of tiles, each decoded against the old array at `data`.
  template <class Done>
  Status run(const uint8_t* data, ThreadPool* pool, const Done& done) const {
    const TileGroups groups(tiling_, pool);
    return parallel_try("decoding", pool, groups.num_runs(), [&](size_t run, unsigned) {
      return decode_run(groups, groups.begin(run), groups.end(run), data, done);
    });
  }

 private:
  Decoder(Layout layout, Payload split, size_t n)
      : width_(layout.width),
        blocks_(std::move(split.blocks)),
        tiling_(split.model.tiles, layout, n) {
    coder_->build(split.model, layout.width);
  }

  // While a group is scanned, the one before gets its new values and the gaps of the next one are
  // read.
  template <class Done>
  Status decode_run(const TileGroups& groups, size_t begin, size_t end, const uint8_t* data,
                    const Done& done) const {
    auto& open = thread_scratch<std::array<OpenTiles, 3>>();
    Prefetcher none;
    const auto finish_one = [&](size_t i, size_t tile, Prefetcher* ahead) -> Status {
      const TileGroup group = groups.group(i);
      DW_RETURN_IF_ERROR(decode_ops(width_)
                             .finish(*coder_, ahead, &open[i % 3][tile])
                             .at("block " + std::to_string(group.first + tile)));
      if (tile + 1 == group.count) done(group, open[i % 3]);
      return {};
    };
    const auto open_one = [&](size_t i, size_t tile, Prefetcher* ahead) {
      const size_t number = groups.group(i).first + tile;
      return decode_ops(width_)
          .open(*coder_, blocks_[number], tiling_[number].size(), ahead, &open[i % 3][tile])
          .at("block " + std::to_string(number));
    };
    const auto locate = [&](size_t i, const Stripe& stripe) {
      decode_ops(width_).locate(
          *coder_, {data + stripe.begin * width_, ptrdiff_t(tiling_.stride() * width_)},
          stripe.shape, uint32_t(stripe.offset), uint32_t(tiling_.stride()),
          &thread_scratch<LocateScratch>(), open[i % 3].data());
    };
    const auto unchanged = [&](size_t i) {
      return std::all_of(open[i % 3].begin(), open[i % 3].begin() + groups.group(i).count,
                         [](const OpenBlock& block) { return block.count == 0; });
    };
    if (!tiling_.tiled()) {  // a block fits the cache: it is better done with at once
      for (size_t i = begin; i < end; ++i) {
        const Stripes stripes(tiling_, groups.group(i));
        Prefetcher ahead = prefetcher(data, stripes[0]);
        DW_RETURN_IF_ERROR(open_one(i, 0, &ahead));
        for (size_t s = 0; s < stripes.size() && !unchanged(i); ++s) locate(i, stripes[s]);
        if (i + 1 < end) ahead = prefetcher(data, Stripes(tiling_, groups.group(i + 1))[0]);
        DW_RETURN_IF_ERROR(finish_one(i, 0, &ahead));
      }
      return {};
    }
    const auto count = [&](size_t i) { return groups.group(i).count; };
    for (size_t tile = 0; tile < count(begin); ++tile) {
      Prefetcher ahead = prefetcher(data, Stripes(tiling_, groups.group(begin))[0]);
      DW_RETURN_IF_ERROR(open_one(begin, tile, &ahead));
    }
    for (size_t i = begin; i < end; ++i) {
      const Stripes stripes(tiling_, groups.group(i));
      const size_t to_finish = i > begin ? count(i - 1) : 0;
      Spread spread(to_finish + (i + 1 < end ? count(i + 1) : 0), stripes.size());
      const auto unit = [&](Prefetcher* ahead) {
        const size_t number = spread.next_unit();
        return number < to_finish ? finish_one(i - 1, number, ahead)
                                  : open_one(i + 1, number - to_finish, ahead);
      };
      for (size_t s = 0; s < stripes.size() && !unchanged(i); ++s) {
        for (Prefetcher ahead = prefetcher(data, stripes[s]); spread.due(s);) {
          DW_RETURN_IF_ERROR(unit(&ahead));
        }
        locate(i, stripes[s]);
      }
      while (spread.due(stripes.size())) DW_RETURN_IF_ERROR(unit(&none));
    }
    for (size_t tile = 0; tile < count(end - 1); ++tile) {
      DW_RETURN_IF_ERROR(finish_one(end - 1, tile, &none));
    }
    return {};
  }

  Prefetcher prefetcher(const uint8_t* data, const Stripe& stripe) const {
    const bool tiled = tiling_.tiled();
    return Prefetcher(data + stripe.begin * width_, tiled ? stripe.left : 1,
                      (tiled ? stripe.shape.columns : stripe.left) * width_,
                      tiling_.stride() * width_);
  }

  const size_t width_;
  std::unique_ptr<Coder> coder_ = std::make_unique<Coder>();
  std::vector<Bytes> blocks_;
  Tiling tiling_;
};

// The bytes of a group of tiles.
template <class Take>
void for_each_bytes(const Tiling& tiling, TileGroup group, size_t width, Bytes data,
                    const Take& take) {
  const Tile front = tiling[group.first], back = tiling[group.first + group.count - 1];
  const Stripe all{front.begin, 0, {front.rows, back.begin + back.columns - front.begin, 0}, 0};
  for_each_piece(tiling, all, [&](size_t, size_t begin, size_t count) {
    take(data.subspan(begin * width, count * width), begin * width);
  });
}

Status apply(Layout layout, Bytes payload, MutableBytes data, ThreadPool* pool, Hasher* hasher) {
  const size_t width = layout.width;
  DW_ASSIGN_OR_RETURN(const Decoder decoder, Decoder::of(layout, payload, data.size() / width));
  const Tiling& tiling = decoder.tiling();
  return decoder.run(data.data(), pool, [&](TileGroup group, const OpenTiles& tiles) {
    for (size_t i = 0; i < group.count; ++i) {
      kernels().scatter[width_index(width)](data.data() + tiling[group.first + i].begin * width,
                                            tiles[i].positions.data(), tiles[i].values.data(),
                                            tiles[i].count);
    }
    if (hasher == nullptr) return;
    for_each_bytes(tiling, group, width, data,
                   [&](Bytes bytes, size_t at) { hasher->update_at(bytes, at); });
  });
}

// The changes of a tile lie by class; a mark per element puts them in the order of the array.
// Positions count from the tile's first element in the array.
template <class T>
void put_in_order(const OpenBlock& block, const Tile& tile, uint32_t stride, ChunkChanges* out) {
  static thread_local std::vector<uint64_t> all_marks;
  static thread_local std::vector<T> all_values;
  const size_t num_words = (tile.size() + 63) / 64;
  all_marks.assign(num_words, 0);
  if (all_values.size() < tile.size()) all_values.resize(tile.size());
  out->base = tile.begin;
  out->positions.resize(block.count);
  out->values.resize(block.count * sizeof(T));
  // Plain pointers: what is written must not make the compiler look them up again.
  uint64_t* const marks = all_marks.data();
  T* const values = all_values.data();
  const uint32_t* const positions = block.positions.data();
  const uint8_t* const found = block.values.data();
  const uint32_t columns = uint32_t(tile.columns);
  for (uint32_t i = 0, count = block.count; i < count; ++i) {
    uint32_t position = positions[i];
    if (tile.rows > 1) position -= position / stride * (stride - columns);
    marks[position / 64] |= uint64_t{1} << position % 64;
    values[position] = load_le<T>(found + i * sizeof(T));
  }
  uint32_t* to = out->positions.data();
  uint8_t* value_to = out->values.data();
  for (size_t word = 0; word < num_words; ++word) {
    for (uint64_t left = marks[word]; left != 0; left &= left - 1) {
      const uint32_t position = uint32_t(word * 64) + uint32_t(std::countr_zero(left));
      *to++ = tile.rows > 1 ? position + position / columns * (stride - columns) : position;
      store_le(value_to, values[position]);
      value_to += sizeof(T);
    }
  }
}

// One list of the tiles side by side, row by row.
ChunkChanges merge_panel(std::span<ChunkChanges> tiles, size_t width, size_t rows,
                         uint32_t stride) {
  ChunkChanges out;
  out.base = tiles[0].base;
  size_t count = 0;
  for (const ChunkChanges& tile : tiles) count += tile.positions.size();
  out.positions.reserve(count);
  out.values.reserve(count * width);
  std::vector<size_t> next(tiles.size());
  for (size_t row = 0; row < rows; ++row) {
    for (size_t i = 0; i < tiles.size(); ++i) {
      const ChunkChanges& tile = tiles[i];
      const uint32_t first = uint32_t(tile.base - out.base);
      const size_t from = next[i];
      const uint64_t end = uint64_t(row + 1) * stride;
      while (next[i] < tile.positions.size() && tile.positions[next[i]] < end) {
        out.positions.push_back(first + tile.positions[next[i]++]);
      }
      out.values.insert(out.values.end(), tile.values.begin() + ptrdiff_t(from * width),
                        tile.values.begin() + ptrdiff_t(next[i] * width));
    }
  }
  return out;
}

template <class T>
Result<Changes> decode_blocks(Layout layout, Bytes payload, Bytes old_bytes, ThreadPool* pool,
                              SharedSums* sums) {
  DW_ASSIGN_OR_RETURN(const Decoder decoder,
                      Decoder::of(layout, payload, old_bytes.size() / sizeof(T)));
  const Tiling& tiling = decoder.tiling();
  const uint32_t stride = uint32_t(tiling.stride());
  std::vector<ChunkChanges> chunks(tiling.size());
  DW_RETURN_IF_ERROR(
      decoder.run(old_bytes.data(), pool, [&](TileGroup group, const OpenTiles& tiles) {
        if (sums != nullptr) {
          for_each_bytes(tiling, group, sizeof(T), old_bytes,
                         [&](Bytes bytes, size_t at) { sums->add(bytes, at); });
        }
        for (size_t i = 0; i < group.count; ++i) {
          const size_t number = group.first + i;
          put_in_order<T>(tiles[i], tiling[number], stride, &chunks[number]);
        }
      }));
  if (const size_t per_panel = tiling.tiles_per_panel(); per_panel > 1) {
    std::vector<ChunkChanges> panels(tiling.num_panels());
    parallel_for(pool, panels.size(), [&](size_t i, unsigned) {
      const std::span<ChunkChanges> tiles(&chunks[i * per_panel], per_panel);
      panels[i] = merge_panel(tiles, sizeof(T), tiling[i * per_panel].rows, stride);
      for (ChunkChanges& tile : tiles) tile = {};
    });
    chunks = std::move(panels);
  }
  return join_chunks(sizeof(T), std::move(chunks), pool);
}

}  // namespace

Status apply_payload(Layout layout, Bytes payload, MutableBytes data, ThreadPool* pool,
                     Hasher* patched) {
  return apply(layout, payload, data, pool, patched);
}

Result<Changes> decode_payload(Layout layout, Bytes payload, Bytes old_bytes, ThreadPool* pool,
                               SharedSums* sums) {
  return with_element(layout.width, [&](auto element) {
    return decode_blocks<decltype(element)>(layout, payload, old_bytes, pool, sums);
  });
}

}  // namespace deltawire::tight
